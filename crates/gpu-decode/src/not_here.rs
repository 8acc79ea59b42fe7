//! What the kernels cannot make, by name: such a sample goes through the host.

/// Why a sample is not made on the GPU. None of these is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotHere {
    /// Its components are four inks, which the host converts.
    #[error("it is CMYK")]
    FourInks,
    /// The recipe does more to it than crop, resize and mirror, or makes a different size of it.
    #[error("the recipe has steps without a kernel")]
    OtherSteps,
    /// Its columns are resized before its rows, as Pillow 13 does where that saves much, or with a
    /// filter that the kernels do not have.
    #[error("it is resized in an order or with a filter without a kernel")]
    OtherResize,
    /// It is neither a record of blocks nor a JPEG that the side index describes.
    #[error("it is stored in a form without kernels, or no earlier epoch has indexed it")]
    OtherForm,
    /// Its box is wider than the kernels' shared memory, or filters take too many inputs.
    #[error("its box is too wide")]
    TooWide,
    /// The batch has no room for it left, in the upload or in the kernels' scratch memory.
    #[error("it does not fit into the batch's memory on the GPU")]
    NoRoom,
}
