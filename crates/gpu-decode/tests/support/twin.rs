#![allow(unsafe_code, reason = "interim")]
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;
use bothends_gpu::GpuError;
use bothends_gpu::driver::*;

#[link(name = "bothends_kernels")]
unsafe extern "C" {
    fn bothends_find_kernel(name: *const c_char) -> c_int;
    fn bothends_run_kernel(kernel: c_int, grid: *const u32, launch: *const u32, seed: u64, arguments: *const *const c_void, message: *mut c_char, bytes: usize) -> c_int;
}
#[derive(Debug)]
pub struct Twin { card: Card, pub seed: u64 }
impl Twin {
    pub fn new(seed: u64) -> Self {
        Self { seed, card: Card { ordinal: 0, name: "twin".into(), driver: String::new(), capability: (0,0), n_multiprocessors: 1, memory_bytes: 1<<32, numa_node: None } }
    }
}
impl Driver for Twin {
    fn card(&self) -> &Card { &self.card }
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let l = std::alloc::Layout::from_size_align(bytes.max(1) + 256, 256).unwrap();
        let p = unsafe { std::alloc::alloc(l) };
        unsafe { std::ptr::write_bytes(p, 0xA5, bytes) };
        Ok(Address(p as u64))
    }
    unsafe fn free(&self, _: Address) {}
    unsafe fn register(&self, _: NonNull<u8>, _: usize) -> Result<(), GpuError> { Ok(()) }
    unsafe fn unregister(&self, _: NonNull<u8>) {}
    fn create_stream(&self) -> Result<StreamId, GpuError> { Ok(StreamId(1)) }
    unsafe fn destroy_stream(&self, _: StreamId) {}
    fn create_event(&self) -> Result<EventId, GpuError> { Ok(EventId(1)) }
    unsafe fn destroy_event(&self, _: EventId) {}
    unsafe fn record(&self, _: EventId, _: StreamId) -> Result<(), GpuError> { Ok(()) }
    unsafe fn stream_waits(&self, _: StreamId, _: EventId) -> Result<(), GpuError> { Ok(()) }
    unsafe fn is_reached(&self, _: EventId) -> Result<bool, GpuError> { Ok(true) }
    unsafe fn wait_for(&self, _: EventId, _: Duration) -> Result<(), GpuError> { Ok(()) }
    unsafe fn upload(&self, to: Address, from: &[u8], _: StreamId) -> Result<(), GpuError> {
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.0 as *mut u8, from.len()) }; Ok(())
    }
    unsafe fn download(&self, to: &mut [u8], from: Address, _: StreamId) -> Result<(), GpuError> {
        unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, to.as_mut_ptr(), to.len()) }; Ok(())
    }
    unsafe fn copy(&self, to: Address, from: Address, bytes: usize, _: StreamId) -> Result<(), GpuError> {
        unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, to.0 as *mut u8, bytes) }; Ok(())
    }
    fn kernel(&self, name: &'static CStr) -> Result<KernelId, GpuError> {
        let k = unsafe { bothends_find_kernel(name.as_ptr()) };
        if k < 0 { return Err(GpuError::Driver { call: "kernel", why: format!("{name:?}") }) }
        Ok(KernelId(k as u64))
    }
    unsafe fn launch(&self, kernel: KernelId, launch: Launch, _: StreamId, arguments: &[*const c_void]) -> Result<(), GpuError> {
        let mut message = vec![0u8; 600];
        let l = [launch.block, launch.shared_bytes];
        let r = unsafe { bothends_run_kernel(kernel.0 as c_int, launch.grid.as_ptr(), l.as_ptr(), self.seed, arguments.as_ptr(), message.as_mut_ptr().cast(), 600) };
        if r != 0 { let n = message.iter().position(|b| *b == 0).unwrap(); message.truncate(n); return Err(GpuError::Driver { call: "launch", why: CString::new(message).unwrap().into_string().unwrap() }) }
        Ok(())
    }
}
