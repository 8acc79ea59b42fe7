//! stub
use crate::{
    image::{Image, View},
    kernels::Level,
};
use bothends_core::recipe::step::Warp;
/// stub
#[derive(Debug, Default)]
pub struct Warper;
impl Warper {
    /// stub
    #[must_use]
    pub fn new(_: Level) -> Self {
        Self
    }
    /// stub
    pub fn warp(&mut self, src: View<'_>, _: &Warp, out: &mut Image) {
        src.copy_to(out);
    }
    pub(crate) fn release_above(&mut self, _: usize) {}
}
