//! Freed memory goes back to the system. The one crate with `unsafe` blocks, and nothing else in it.
//!
//! glibc keeps it in two ways. Once a large block has been freed, blocks of that size come from the heaps of its
//! threads, where they leave holes: 150 answers of 1 MB, a dozen of them at once, took 56 to 72 MiB, and take 26 with
//! [`keep_large_blocks_apart`]. And it returns the end of a heap at best: of 5,000 abandoned sessions, 200 MiB, it kept
//! everything until [`give_back`]. Tried instead: mimalloc kept half of it; jemalloc gave all back within 8 s, and
//! takes minutes of a build.
//!
//! Where the C library is not glibc, both do nothing: others do so by themselves.

/// From how many bytes on a block is mapped by itself.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: std::ffi::c_int = 256 * 1024;

/// From now on a block of 256 KiB or more is mapped by itself, and is the system's again as soon as it is freed. For the
/// start of a program.
pub fn keep_large_blocks_apart() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "there is no other way to say this to glibc")]
        // SAFETY: mallopt(3) may be called at any time, and touches nothing that is allocated.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        }
    }
}

/// Gives freed memory back: a walk through the allocator's free lists, a few milliseconds.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "there is no other way to say this to glibc")]
        // SAFETY: malloc_trim(3) may be called at any time by any thread, and touches nothing that is allocated.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
