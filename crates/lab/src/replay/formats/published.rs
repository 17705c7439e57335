//! Traces of storage systems as their collections publish them.

use super::fields::{is_write, nanos, sectors, separated, spaced};
use super::{Before, Found, Line, TraceFormat};

/// Microsoft Research Cambridge: `proj_1`, `prn_1`, ... Offsets and sizes are bytes, times 100 ns.
///
/// Source: README of the set in SNIA's IOTTA repository; Narayanan, Donnelly and Rowstron, *Write Off-Loading*, FAST '08.
pub const MSR: TraceFormat =
    TraceFormat { name: "msr", line: "'timestamp,host,disk,Read|Write,offset,size,response'", header: None, read: msr };

/// Florida International University: `homes`, `mail`, `webmail`, ... Addresses and sizes are sectors, times nanoseconds. The digests at
/// the end are not looked at: homes has them by the sector, the others by 4 KiB.
///
/// Source: README of the sets in SNIA's IOTTA repository; Koller and Rangaswami, *I/O Deduplication*, FAST '10.
pub const FIU: TraceFormat =
    TraceFormat { name: "fiu", line: "'ts_ns pid process lba sectors R|W major minor md5'", header: None, read: fiu };

/// Storage Performance Council: `Financial1`, `WebSearch1`, ... of the UMass repository. Addresses are blocks, of 512 bytes as in
/// these, sizes bytes, times seconds from the begin; what comes after the first five fields is optional and not looked at.
///
/// Source: *SPC Trace File Format Specification*, revision 1.0.1, Storage Performance Council, 2002.
pub const SPC: TraceFormat =
    TraceFormat { name: "spc", line: "'asu,lba,size,R|W,timestamp_s'", header: None, read: spc };

/// Alibaba's cloud block storage. Offsets and lengths are bytes, times microseconds.
///
/// Source: README of the repository alibaba/block-traces; Li et al., *An In-Depth Analysis of Cloud Block Storage Workloads in
/// Large-Scale Production*, IISWC '20.
pub const ALIBABA: TraceFormat =
    TraceFormat { name: "alibaba", line: "'device_id,R|W,offset,length,timestamp_us'", header: None, read: alibaba };

/// Tencent's cloud block storage (CBS). Offsets and sizes are sectors, times whole seconds: all requests of a second come at once.
///
/// Source: README of the set in SNIA's IOTTA repository; Zhang et al., *OSCA*, ATC '20.
pub const TENCENT: TraceFormat =
    TraceFormat { name: "tencent", line: "'timestamp_s,offset,size,0|1,volume'", header: None, read: tencent };

fn msr(line: &str, _: &mut Before) -> Found {
    let fields = separated(line);
    let [time, _, _, operation, offset, size, response] = fields.as_slice() else { return None };
    Some(Some(Line {
        nanos: time.parse::<u64>().ok()?.checked_mul(100)?,
        is_write: is_write(operation)?,
        offset_bytes: offset.parse().ok()?,
        length_bytes: size.parse().ok()?,
        latency_nanos: Some(response.parse::<u64>().ok()?.checked_mul(100)?),
    }))
}

fn fiu(line: &str, _: &mut Before) -> Found {
    let fields = spaced(line);
    let [time, _, _, sector, count, operation, _, _, ..] = fields.as_slice() else { return None };
    Some(Some(Line {
        nanos: time.parse().ok()?,
        is_write: is_write(operation)?,
        offset_bytes: sectors(sector)?,
        length_bytes: sectors(count)?,
        latency_nanos: None,
    }))
}

fn spc(line: &str, _: &mut Before) -> Found {
    let fields = separated(line);
    let [_, block, size, operation, time, ..] = fields.as_slice() else { return None };
    Some(Some(Line {
        nanos: nanos(time, 1_000_000_000)?,
        is_write: is_write(operation)?,
        offset_bytes: sectors(block)?,
        length_bytes: size.parse().ok()?,
        latency_nanos: None,
    }))
}

fn alibaba(line: &str, _: &mut Before) -> Found {
    let fields = separated(line);
    let [_, operation, offset, length, time] = fields.as_slice() else { return None };
    Some(Some(Line {
        nanos: nanos(time, 1000)?,
        is_write: is_write(operation)?,
        offset_bytes: offset.parse().ok()?,
        length_bytes: length.parse().ok()?,
        latency_nanos: None,
    }))
}

fn tencent(line: &str, _: &mut Before) -> Found {
    let fields = separated(line);
    let [time, offset, size, operation, _] = fields.as_slice() else { return None };
    let is_write = match *operation {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    Some(Some(Line {
        nanos: nanos(time, 1_000_000_000)?,
        is_write,
        offset_bytes: sectors(offset)?,
        length_bytes: sectors(size)?,
        latency_nanos: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, refuses};
    use super::*;

    #[test]
    fn msr_is_read() {
        let text =
            "128166372003061629,hm,1,Read,383496192,32768,413\n\n128166372016382155,hm,1,Write,2822144,4096,138\n";
        let expected =
            [(0, false, 383_496_192, 32_768, Some(41_300)), (1_332_052_600, true, 2_822_144, 4096, Some(13_800))];
        assert_eq!(parse(text, MSR), expected);
        refuses(MSR, &["128166372016382155,hm,1,Write,2822144,4096,138,", "1,hm,1,Flush,0,512,1"]);
        // Numbers that are too large for what they stand for.
        refuses(MSR, &["18446744073709551615,a,b,Read,0,512,1", "1,a,b,Read,0,99999999999,1"]);
    }

    #[test]
    fn fiu_is_read() {
        let text = "89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523\n\
                    89968195792562 4892 syslogd 904265560 16 W 6 0 531e779e 00ff\n";
        let expected = [(0, false, 283_193_184 * 512, 4096, None), (100, true, 904_265_560 * 512, 8192, None)];
        assert_eq!(parse(text, FIU), expected);
        refuses(
            FIU,
            &["1 2 a b 3 8 R 6 0 ff", "1 2 a 3 8 R 6", "1 2 a 3 8 0 6 0 ff", "1 2 a 36028797018963968 8 R 6 0 f"],
        );
    }

    #[test]
    fn spc_is_read() {
        let text = "0,303567,3584,w,0.000000\n1, 55590 ,3072,R,0.026214,optional,fields\n";
        let expected = [(0, true, 303_567 * 512, 3584, None), (26_214_000, false, 55_590 * 512, 3072, None)];
        assert_eq!(parse(text, SPC), expected);
        refuses(SPC, &["0,303567,3584,w", "0,303567,3584,x,0.5", "0,1.5,3584,w,0.5", "0,1,3584,w,half"]);
    }

    #[test]
    fn alibaba_is_read() {
        let text = "0,R,126703661056,4096,1577808000000046\n1,W,19496058880,77824,1577808000000426\n";
        let expected = [(0, false, 126_703_661_056, 4096, None), (380_000, true, 19_496_058_880, 77_824, None)];
        assert_eq!(parse(text, ALIBABA), expected);
        refuses(ALIBABA, &["device_id,opcode,offset,length,timestamp", "0,R,1,4096", "0,R,1,4096,1,1"]);
    }

    #[test]
    fn tencent_is_read() {
        let text = "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n";
        let expected = [(0, false, 12_910_952 * 512, 65_536, None), (1_000_000_000, true, 6_338_688 * 512, 4096, None)];
        assert_eq!(parse(text, TENCENT), expected);
        refuses(TENCENT, &["1538323200,12910952,128,2,1063", "1538323200,12910952,128,0", "x,1,8,0,1"]);
    }
}
