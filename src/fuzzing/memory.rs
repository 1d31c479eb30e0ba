//! What a target takes of the heap, and the law for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What any target may take, whatever its input.
const BASE: usize = 128 << 20;
/// What it may take beyond, for each byte of its input.
const EACH: usize = 8 << 10;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count for each thread. A program that makes it its global one can use [`peak`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Counting;

fn add(bytes: usize) {
    let held = HELD.get().saturating_add(bytes);
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

fn sub(bytes: usize) {
    // What another thread allocated can be freed by this one.
    HELD.set(HELD.get().saturating_sub(bytes));
}

#[allow(unsafe_code, reason = "an allocator cannot be written without; each call goes to the system's as it is")]
// SAFETY: every method passes its arguments to `System` unchanged, and counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        sub(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While it moves, both are held.
        add(size);
        let moved = unsafe { System.realloc(pointer, layout, size) };
        sub(layout.size());
        moved
    }
}

/// The most bytes that this thread held during `action`, beyond what it held before; 0 where [`Counting`] is not the
/// allocator.
pub fn peak(action: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    action();
    PEAK.get().saturating_sub(before)
}

/// What a target may take for an input of `bytes` bytes.
pub fn bound(bytes: usize) -> usize {
    BASE.saturating_add(bytes.saturating_mul(EACH))
}
