//! What a device is: rules, timing and backing; real hardware; fault, crash and trace layers.
