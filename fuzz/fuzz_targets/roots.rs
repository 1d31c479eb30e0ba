#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lakemark::fuzzing::roots(bytes));
