//! Where a tensor is in memory, and the type of its elements.

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    U8,
    F32,
    F16,
    Bf16,
    I64,
    Bool,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    F64,
}

impl Element {
    /// Its name in PyTorch and NumPy.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::I64 => "int64",
            Self::Bool => "bool",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::U64 => "uint64",
            Self::F64 => "float64",
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::U16 | Self::I16 => 2,
            Self::F32 | Self::U32 | Self::I32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Its type string in NumPy's array interface, version 3, which has no bfloat16.
    pub(crate) fn typestr(self) -> Option<&'static str> {
        match self {
            Self::U8 => Some("|u1"),
            Self::F32 => Some("<f4"),
            Self::F16 => Some("<f2"),
            Self::I64 => Some("<i8"),
            Self::Bool => Some("|b1"),
            Self::I8 => Some("|i1"),
            Self::U16 => Some("<u2"),
            Self::I16 => Some("<i2"),
            Self::U32 => Some("<u4"),
            Self::I32 => Some("<i4"),
            Self::U64 => Some("<u8"),
            Self::F64 => Some("<f8"),
            Self::Bf16 => None,
        }
    }
}

/// Where a tensor is in memory, relative to the first byte.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) element: Element,
    /// Bytes before its first element.
    pub(crate) offset: usize,
    pub(crate) shape: Vec<i64>,
    /// The stride of each dimension, in elements.
    pub(crate) strides: Vec<i64>,
}

impl View {
    /// A dense tensor.
    pub(crate) fn dense(element: Element, shape: Vec<i64>) -> Self {
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i];
        }
        Self { element, offset: 0, shape, strides }
    }

    /// The same with rows `row` elements apart, starting `offset` bytes later.
    pub(crate) fn strided(mut self, row: i64, offset: usize) -> Self {
        self.strides[0] = row;
        self.offset = offset;
        self
    }

    /// Its bytes in `memory`, row by row: each row is dense, but there may be gaps between rows.
    pub(crate) fn gathered(&self, memory: &[u8]) -> Vec<u8> {
        let bytes = |n: i64| usize::try_from(n).unwrap_or(0) * self.element.size();
        let n_rows = usize::try_from(self.shape.first().copied().unwrap_or(1));
        let row = bytes(self.shape.iter().skip(1).product());
        let stride = bytes(self.strides.first().copied().unwrap_or(0));
        let starts = (0..n_rows.unwrap_or(0)).map(|i| self.offset + i * stride);
        starts.flat_map(|start| &memory[start..start + row]).copied().collect()
    }
}
