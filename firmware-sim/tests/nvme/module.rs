//! WebAssembly modules for the tests, by hand: all imports, one function, one memory.

#![allow(dead_code, reason = "not each test needs all of it")]

/// Indices of the imported functions.
pub(crate) const RANGE_BYTES: u8 = 0;
pub(crate) const READ: u8 = 1;
pub(crate) const WRITE: u8 = 2;
pub(crate) const DATA_BYTES: u8 = 3;
pub(crate) const DATA: u8 = 4;
pub(crate) const END: u8 = 5;
/// The index of the entry itself.
pub(crate) const RUN: u8 = 6;

const I32: u8 = 0x7f;
const I64: u8 = 0x7e;

/// A module, section by section; a test changes what it is about.
pub(crate) struct Module {
    /// Module and name of each import, with the index of its type.
    pub(crate) imports: Vec<(&'static str, &'static str, u8)>,
    /// The index of the entry's type.
    pub(crate) entry: u8,
    /// Pages of memory.
    pub(crate) pages: u32,
    /// Names of exports, with kind (0 a function, 2 a memory) and index.
    pub(crate) exports: Vec<(&'static str, u8, u8)>,
    /// Whether the entry is the start function, too: the section of it.
    pub(crate) start: Vec<u8>,
    /// Groups of locals: how many, of the type of 64-bit integers.
    pub(crate) locals: Vec<u32>,
    /// Instructions, without the end.
    pub(crate) body: Vec<u8>,
    /// More functions, which do nothing.
    pub(crate) more: usize,
    /// More types of functions, each the same.
    pub(crate) types: usize,
}

impl Module {
    pub(crate) fn of(body: &[u8]) -> Self {
        Self {
            imports: vec![
                ("csd_1", "range_bytes", 1),
                ("csd_1", "read", 2),
                ("csd_1", "write", 2),
                ("csd_1", "data_bytes", 3),
                ("csd_1", "data", 4),
                ("csd_1", "end", 5),
            ],
            entry: 0,
            pages: 1,
            exports: vec![("memory", 2, 0), ("run", 0, RUN)],
            start: Vec::new(),
            locals: Vec::new(),
            body: body.to_vec(),
            more: 0,
            types: 0,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let types: [(&[u8], &[u8]); 6] = [
            (&[I64, I64], &[I64]),
            (&[I32], &[I64]),
            (&[I32; 4], &[]),
            (&[], &[I32]),
            (&[I32; 3], &[]),
            (&[I32], &[]),
        ];
        let types = types.iter().map(|(from, to)| {
            let counted = |list: &[u8]| [&number(list.len()), list].concat();
            [vec![0x60], counted(from), counted(to)].concat()
        });
        let more_types = std::iter::repeat_n(vec![0x60, 0, 0], self.types);
        // Of the type without results: no locals, and the end at once.
        let more_kinds = std::iter::repeat_n(vec![5], self.more);
        let more_bodies = std::iter::repeat_n(vec![2, 0, 0x0b], self.more);
        let imports = self.imports.iter().map(|(module, name, kind)| {
            [text(module), text(name), vec![0, *kind]].concat()
        });
        let exports = self
            .exports
            .iter()
            .map(|(name, kind, index)| [text(name), vec![*kind, *index]].concat());
        let locals =
            self.locals.iter().map(|n| [number(*n as usize), vec![I64]].concat());
        let body = [list(locals), self.body.clone(), vec![0x0b]].concat();
        let body = [number(body.len()), body].concat();
        let memory = [vec![0], number(self.pages as usize)].concat();
        [
            b"\0asm\x01\0\0\0".to_vec(),
            section(1, list(types.chain(more_types))),
            section(2, list(imports)),
            section(3, list(std::iter::once(vec![self.entry]).chain(more_kinds))),
            section(5, list([memory].into_iter())),
            section(7, list(exports)),
            if self.start.is_empty() { vec![] } else { section(8, self.start.clone()) },
            section(10, list(std::iter::once(body).chain(more_bodies))),
        ]
        .concat()
    }
}

/// Writes 8 bytes of range 1 plus the first parameter to range 2, and returns them plus the second.
pub(crate) fn adds() -> Vec<u8> {
    let body = [
        call(READ, [1, 0, 0, 8]),
        // Address 16, for the store; then the sum.
        vec![0x41, 16, 0x41, 0, 0x29, 3, 0, 0x20, 0, 0x7c, 0x37, 3, 0],
        call(WRITE, [2, 0, 16, 8]),
        vec![0x41, 16, 0x29, 3, 0, 0x20, 1, 0x7c],
    ];
    Module::of(&body.concat()).bytes()
}

/// A call with constants, each below 64.
pub(crate) fn call<const N: usize>(function: u8, with: [u8; N]) -> Vec<u8> {
    let mut own: Vec<u8> = with.iter().flat_map(|n| [0x41, *n]).collect();
    own.extend([0x10, function]);
    own
}

/// A number in LEB128.
pub(crate) fn number(mut n: usize) -> Vec<u8> {
    let mut own = Vec::new();
    while n > 0x7f {
        own.push(0x80 | u8::try_from(n & 0x7f).unwrap_or(0));
        n >>= 7;
    }
    own.push(u8::try_from(n).unwrap_or(0));
    own
}

fn text(text: &str) -> Vec<u8> {
    [number(text.len()), text.as_bytes().to_vec()].concat()
}

fn section(id: u8, content: Vec<u8>) -> Vec<u8> {
    [vec![id], number(content.len()), content].concat()
}

fn list(items: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let items: Vec<_> = items.collect();
    [number(items.len()), items.concat()].concat()
}
