//! Programs that hosts load, as WebAssembly modules. wasmtime compiles and runs them.
//!
//! A module is compiled when it is activated, and each execution has an instance of its own: nothing that one
//! leaves behind is there for the next, and the same input costs the same fuel every time. `imports` has the
//! functions that a program may call, `layout` what is refused before the compiler sees it, `clock` the end of
//! what has run for too long.
//!
//! What ends an execution: a limit of [`Limits`] or of the stack (8Ah), a trap (06h), a range or bytes of it that are
//! not there (02h), or the program itself with a status of its own. None of them touches anything but the
//! instance and the ranges that the program had written already.

mod clock;
mod imports;
mod layout;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bothends_nvme::Status;
use wasmtime::{
    Config, Engine, ExternType, InstancePre, Linker, Module, Store, Trap, TypedFunc,
    UpdateDeadline, ValType,
};

use super::{Call, Done, Program, Runtime, Work};
use clock::Clock;
use imports::{Ended, Guest};

/// Their type: the first of those that a vendor may choose.
pub(super) const KIND: u8 = 0xc0;

/// The function that an execution calls, with both parameters.
const ENTRY: &str = "run";
/// The program's memory, which the imported functions read and write.
const MEMORY: &str = "memory";
/// Bytes of a program's stack of calls.
const STACK_BYTES: usize = 512 << 10;
/// Tables that a module may have.
const MOST_TABLES: u32 = 8;
/// Bytes of a page of memory.
const PAGE: u64 = 64 << 10;

/// What a program may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Fuel of an execution: an instruction is one, and so are each eight bytes that an imported function moves.
    fuel: u64,
    /// Time of an execution, for what takes long without much fuel. Less than Linux waits for a command.
    time: Duration,
    /// Bytes of an execution's memory.
    memory_bytes: usize,
    /// Elements of a table.
    table_elements: usize,
    /// What the compiler is given at all.
    module: layout::Most,
}

impl Limits {
    /// Those of a device. The fuel is that of about 600 photos of half a megapixel, decoded and resized.
    pub(super) const DEFAULT: Self = Self {
        fuel: 1 << 35,
        time: Duration::from_secs(20),
        memory_bytes: 256 << 20,
        table_elements: 1 << 16,
        module: layout::Most {
            bytes: 4 << 20,
            functions: 1 << 14,
            body_bytes: 256 << 10,
            locals: 1 << 20,
        },
    };
}

/// The runtime.
#[derive(Debug)]
pub(super) struct Wasm {
    shared: Arc<Shared>,
    /// One compiles at a time.
    compiling: Mutex<()>,
}

struct Shared {
    engine: Engine,
    linker: Linker<Guest>,
    limits: Limits,
    clock: Clock,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Wasm {
    /// A runtime, unless this machine has no compiler or no thread for it.
    pub(super) fn new(limits: Limits) -> Option<Self> {
        let engine = Engine::new(&config()).ok()?;
        let mut linker = Linker::new(&engine);
        imports::add(&mut linker).ok()?;
        let clock = Clock::start(&engine).ok()?;
        let shared = Arc::new(Shared { engine, linker, limits, clock });
        Some(Self { shared, compiling: Mutex::new(()) })
    }
}

/// What is the same on every machine, and takes time in proportion to its bytes.
fn config() -> Config {
    let mut own = Config::new();
    own.consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        // A call with a thousand results is two bytes long.
        .wasm_multi_value(false)
        .wasm_tail_call(false)
        .wasm_backtrace(false)
        .generate_address_map(false);
    own
}

impl Runtime for Wasm {
    fn prepare(&self, bytes: &[u8], id: u64) -> Result<Arc<dyn Program>, Status> {
        let Shared { engine, linker, limits, .. } = &*self.shared;
        layout::check(bytes, limits.module)?;
        let module = {
            let _one = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
            Module::from_binary(engine, bytes).map_err(|_| Status::PROGRAM_DATA)?
        };
        check(&module, limits)?;
        // An import that nobody provides ends here.
        let instance =
            linker.instantiate_pre(&module).map_err(|_| Status::PROGRAM_DATA)?;
        Ok(Arc::new(Loaded { id, instance, shared: Arc::clone(&self.shared) }))
    }
}

/// Whether the module has what an execution needs, and begins within the limits.
fn check(module: &Module, limits: &Limits) -> Result<(), Status> {
    let entry = match module.get_export(ENTRY) {
        Some(ExternType::Func(entry)) => entry,
        _ => return Err(Status::PROGRAM_DATA),
    };
    let is_i64 = |kind: &ValType| matches!(kind, ValType::I64);
    let is_entry = entry.params().len() == 2
        && entry.results().len() == 1
        && entry.params().chain(entry.results()).all(|kind| is_i64(&kind));
    let has_memory = matches!(module.get_export(MEMORY), Some(ExternType::Memory(_)));
    if !is_entry || !has_memory {
        return Err(Status::PROGRAM_DATA);
    }
    let takes = module.resources_required();
    let pages = takes.max_initial_memory_size.unwrap_or(0);
    let elements = takes.max_initial_table_size.unwrap_or(0);
    let is_small = pages <= limits.memory_bytes as u64 / PAGE
        && elements <= limits.table_elements as u64
        && takes.num_tables <= MOST_TABLES;
    if is_small { Ok(()) } else { Err(Status::PROGRAM_RESOURCES) }
}

/// A program that is active.
struct Loaded {
    id: u64,
    instance: InstancePre<Guest>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Program for Loaded {
    fn kind(&self) -> u8 {
        KIND
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn run(&self, call: &Call<'_>) -> Result<Done, Status> {
        let limits = &self.shared.limits;
        let guest = Guest::new(call, limits.memory_bytes, limits.table_elements);
        let mut store = Store::new(&self.shared.engine, guest);
        store.limiter(|guest| guest);
        let stop = call.stop.within(limits.time);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| match stop.check() {
            Ok(()) => Ok(UpdateDeadline::Continue(1)),
            Err(status) => Err(Ended(status).into()),
        });
        let _running = self.shared.clock.running();
        let value = self
            .value(&mut store, (call.parameter_1, call.parameter_2))
            .map_err(|error| status_of(&error))?;
        let left = store.get_fuel().map_err(|_| Status::INTERNAL_ERROR)?;
        Ok(Done { value, work: Work::Fuel(limits.fuel.saturating_sub(left)) })
    }
}

impl Loaded {
    fn value(
        &self,
        store: &mut Store<Guest>,
        parameters: (u64, u64),
    ) -> wasmtime::Result<u64> {
        store.set_fuel(self.shared.limits.fuel)?;
        let instance = self.instance.instantiate(&mut *store)?;
        let memory = instance.get_memory(&mut *store, MEMORY);
        store.data_mut().set_memory(memory);
        let entry: TypedFunc<(u64, u64), u64> =
            instance.get_typed_func(&mut *store, ENTRY)?;
        entry.call(store, parameters)
    }
}

/// The status of an execution that has not come to its end.
fn status_of(error: &wasmtime::Error) -> Status {
    if let Some(Ended(status)) = error.downcast_ref() {
        return *status;
    }
    let is_limit = error
        .downcast_ref()
        .is_some_and(|trap| matches!(trap, Trap::OutOfFuel | Trap::StackOverflow));
    if is_limit { Status::PROGRAM_RESOURCES } else { Status::INTERNAL_ERROR }
}
