//! What happens where the operating system starts no more threads: in a process of its own, whose threads ask for
//! stacks larger than its address space.

use std::process::Command;
use std::time::Duration;
use varve_env::Env;

const CHILD: &str = "without-threads";

fn main() {
    if std::env::args().any(|argument| argument == CHILD) {
        return without_threads();
    }
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).arg(CHILD).env("RUST_MIN_STACK", (1_u64 << 50).to_string()).output();
    let output = output.expect("the child runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn without_threads() {
    for env in [Env::real(), Env::sim(1)] {
        for _ in 0..3 {
            assert!(env.try_spawn("never", || ()).is_err());
        }
        // Nobody waits for one that never came.
        env.sleep(Duration::from_millis(1));
        assert!(env.live_actors() <= 1);
    }
}
