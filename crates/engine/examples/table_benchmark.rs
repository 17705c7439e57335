//! Prints what the operations of a table cost.
//!
//! `cargo run --release -p varve-engine --example table_benchmark [value bytes] [entries] [operations]
//! [block align] [repetitions]`

use varve_engine::benchmark::{Workload, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let value_bytes = arguments.next().transpose()?.unwrap_or(1024);
    let entries = arguments.next().transpose()?.unwrap_or(100_000);
    let operations = arguments.next().transpose()?.unwrap_or(1_000_000);
    let block_align = arguments.next().transpose()?.unwrap_or(0);
    let repetitions = arguments.next().transpose()?.unwrap_or(3);
    let tables = (entries * (value_bytes + 32) / (64 << 20)).max(1);
    let workload = Workload {
        tables,
        entries: entries / tables,
        value_bytes: value_bytes as usize,
        operations,
        block_align: block_align as usize,
    };
    println!("{workload:?}");
    // The least of several runs is the one that was disturbed least.
    let mut least = run(workload)?;
    for _ in 1..repetitions {
        for (line, again) in least.iter_mut().zip(run(workload)?) {
            line.nanos = line.nanos.min(again.nanos);
        }
    }
    for line in least {
        println!("{:>10.1} ns  {} ({} times)", line.nanos, line.operation, line.count);
    }
    Ok(())
}
