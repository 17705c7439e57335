//! Fails when it is given one word: proof that the fuzzer is guided and that failures are seen.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut matched = 0;
    for (byte, expected) in bytes.iter().zip(b"varve") {
        if byte != expected {
            break;
        }
        matched += 1;
    }
    assert!(matched < 5, "the canary sings");
});
