//! What all fuzz targets share: an allocator that counts, and panics that are known to be caught.

pub use libfuzzer_sys;

#[global_allocator]
static COUNTING: lakemark::fuzzing::Counting = lakemark::fuzzing::Counting;

/// Lets panics of Parquet's and Arrow's decoders unwind: the store catches them. All others end the process at once,
/// which is how libFuzzer sees them.
pub fn prepare() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !lakemark::fuzzing::is_caught(panic) {
            abort(panic);
        }
    }));
}

/// A fuzz target of the core, by its name there.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(init: $crate::prepare(), |bytes: &[u8]| {
            lakemark::fuzzing::run($name, bytes)
        });
    };
}
