use super::*;
use crate::device::{BlockDeviceExt, Device};
use crate::directory::{Directory, MemoryDirectory, OpenMode};
use crate::emulated::Emulated;
use crate::{IoClass, JobId};
use std::io::IoSlice;

#[test]
fn every_request_becomes_a_record_with_context_and_outcome() {
    let env = Env::sim(1);
    let trace = MemoryTrace::new();
    let inner = Device::of_blocks(Arc::new(Emulated::immediate(&env, "ram", 1 << 20)));
    let device = TraceDevice::device(&env, Arc::new(trace.clone()), &inner);
    let context = IoContext::of(IoClass::Flush).at_level(3).for_job(JobId(8));
    device.block.write_at(4096, &[1; 1024], &context).unwrap();
    device.block.write_at(1, &[1; 512], &context).unwrap_err();
    device.block.sync(&context).unwrap();
    let lines: Vec<String> = trace.take().iter().map(|record| record.to_string()).collect();
    assert_eq!(
        lines,
        [
            "0 0 write 4096 1024 flush Direct 3 8 ok ram",
            "0 0 write 1 512 flush Direct 3 8 InvalidRequest ram",
            "0 0 sync 0 0 flush Direct 3 8 ok ram",
        ]
    );
    assert!(trace.take().is_empty());
}

#[test]
fn directories_are_traced_as_text() {
    let env = Env::sim(1);
    let sink = Arc::new(TextTrace::new(Vec::new()));
    let directory = TraceDirectory::new(&env, sink.clone(), Arc::new(MemoryDirectory::new("ram")));
    let mode = OpenMode { write: true, create: true, ..OpenMode::default() };
    let file = directory.open("odd\nname", mode).unwrap();
    file.write_at(7, &[IoSlice::new(b"abc")], &IoContext::of(IoClass::Log)).unwrap();
    env.sleep(std::time::Duration::from_nanos(5));
    directory.remove("none").unwrap_err();
    directory.sync().unwrap();
    sink.flush().unwrap();
    let text = String::from_utf8(sink.output.lock().writer.clone()).unwrap();
    let expected = "0 0 open 0 0 - - - - ok odd\\nname\n\
        0 0 write 7 3 log Direct - - ok odd\\nname\n\
        5 0 remove 0 0 - - - - NotFound none\n\
        5 0 directory_sync 0 0 - - - - ok ram\n";
    assert_eq!(text, expected);
}

#[test]
fn a_full_trace_says_so() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let env = Env::real();
    let sink = Arc::new(TextTrace::new(Full));
    let directory = TraceDirectory::new(&env, sink.clone(), Arc::new(MemoryDirectory::new("ram")));
    directory.sync().unwrap();
    assert_eq!(sink.flush().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    sink.flush().unwrap();
}
