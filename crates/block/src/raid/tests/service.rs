//! Arrays in service: members that fail, are replaced and rebuilt; resync; scrub.

use super::*;

#[test]
fn data_survive_every_loss_that_a_level_tolerates() {
    let mut reached = ArrayStatistics::default();
    for (level, count) in SHAPES {
        for (seed, lost) in losses(count, level.tolerated(count).min(2)).into_iter().enumerate() {
            let statistics = in_simulation(seed as u64, move |env| {
                let members = members(env, count, 6 * CHUNK);
                let (device, array) = open(env, level, &all(&members)).unwrap();
                let mut host = Host::new(device, seed as u64);
                (0..40).for_each(|_| host.step().unwrap());
                for slot in &lost {
                    array.fail(*slot).unwrap();
                    host.check();
                    (0..25).for_each(|_| host.step().unwrap());
                }
                host.check();
                assert_eq!(array.degraded_members(), lost.len());
                // Each is replaced by a device with other data, and rebuilt while writes go on.
                for slot in &lost {
                    let spare = member(env, "spare", 6 * CHUNK);
                    spare.block.write_at(0, &[7; 128 << 10][..64 << 10], &IoContext::default()).unwrap();
                    array.replace(*slot, &spare).unwrap();
                    (0..20).for_each(|_| host.step().unwrap());
                }
                array.wait_for_maintenance();
                host.check();
                assert_eq!(array.degraded_members(), 0, "{:?}", array.members());
                let report = array.scrub(false, &IoContext::default()).unwrap();
                assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{report:?}");
                // The rebuilt members are as good as the others.
                let tolerated = level.tolerated(count);
                for slot in (0..count).filter(|slot| !lost.contains(slot)).take(tolerated) {
                    array.fail(slot).unwrap();
                }
                host.check();
                array.statistics()
            });
            reached.rebuilt_stripes += statistics.rebuilt_stripes;
            reached.recovered_reads += statistics.recovered_reads;
            reached.recovering_writes += statistics.recovering_writes;
            reached.read_modify_writes += statistics.read_modify_writes;
            reached.reconstruct_writes += statistics.reconstruct_writes;
            reached.full_stripe_writes += statistics.full_stripe_writes;
        }
    }
    println!("reached: block raid/losses: {reached:?}");
    let ArrayStatistics {
        rebuilt_stripes,
        recovered_reads,
        recovering_writes,
        read_modify_writes,
        reconstruct_writes,
        full_stripe_writes,
        ..
    } = reached;
    for count in [
        rebuilt_stripes,
        recovered_reads,
        recovering_writes,
        read_modify_writes,
        reconstruct_writes,
        full_stripe_writes,
    ] {
        assert!(count > 20, "{reached:?}");
    }
}

#[test]
fn an_array_that_was_closed_needs_no_resync() {
    for (level, count) in SHAPES {
        in_simulation(1, move |env| {
            let members = members(env, count, 8 * CHUNK);
            let (device, array) = open(env, level, &all(&members)).unwrap();
            let mut host = Host::new(device, 1);
            (0..50).for_each(|_| host.step().unwrap());
            let Host { device, stamps: expected, .. } = host;
            drop((device, array));
            // In any order.
            let mut given = all(&members);
            given.rotate_left(1);
            let (device, array) = open(env, level, &given).unwrap();
            array.wait_for_maintenance();
            assert_eq!(array.statistics().resynced_stripes, 0);
            assert_eq!(stamps(&device).unwrap().unwrap(), expected);
            let report = array.scrub(false, &IoContext::default()).unwrap();
            assert_eq!(report.mismatched_stripes, 0, "{level}");
        });
    }
}

#[test]
fn several_writers_of_one_stripe_leave_it_consistent() {
    for seed in 0..12 {
        let (level, count) = SHAPES[3 + seed as usize % 5];
        in_simulation(seed, move |env| {
            let members = members(env, count, 2 * CHUNK);
            let (device, array) = open(env, level, &all(&members)).unwrap();
            let writers: Vec<_> = (0..4)
                .map(|number| {
                    let (device, env) = (device.clone(), env.clone());
                    env.spawn("writer", move || {
                        let mut host = Host::new(device, seed * 10 + number);
                        for _ in 0..30 {
                            let range = host.range();
                            match host.random.below(6) {
                                0 => host.device.block.sync(&IoContext::default()).unwrap(),
                                1 => host.discard(range).unwrap(),
                                _ => host.write(range).unwrap(),
                            }
                        }
                    })
                })
                .collect();
            if seed % 2 == 0 {
                array.fail(1).unwrap();
                array.replace(1, &member(env, "spare", 2 * CHUNK)).unwrap();
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap_or_else(|panicked| panicked.resume()));
            array.wait_for_maintenance();
            let report = array.scrub(false, &IoContext::default()).unwrap();
            assert_eq!((report.mismatched_stripes, report.unchecked_stripes), (0, 0), "seed {seed} {level}");
            let found = stamps(&device).unwrap().expect("a torn sector");
            // What members have is what redundancy says.
            array.fail(0).unwrap();
            assert_eq!(stamps(&device).unwrap().unwrap(), found, "seed {seed} {level}");
        });
    }
}

#[test]
fn scrub_finds_damage_in_data_and_parity() {
    for (level, count) in SHAPES.into_iter().filter(|(level, _)| *level != RaidLevel::Raid0) {
        in_simulation(1, move |env| {
            let members = members(env, count, 6 * CHUNK);
            let (device, array) = open(env, level, &all(&members)).unwrap();
            let mut host = Host::new(device, 1);
            (0..50).for_each(|_| host.step().unwrap());
            for stripe in [1, 4] {
                let at = DATA_OFFSET + stripe * CHUNK + SECTOR;
                let mut sector = [0; SECTOR as usize];
                let victim = &members[stripe as usize % count].block;
                victim.read_at(at, &mut sector, &IoContext::default()).unwrap();
                sector[100] ^= 1;
                victim.write_at(at, &sector, &IoContext::default()).unwrap();
            }
            let report = array.scrub(false, &IoContext::default()).unwrap();
            assert_eq!((report.stripes, report.mismatched), (6, vec![1, 4]), "{level}");
        });
    }
}
