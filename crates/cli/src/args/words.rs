//! Flags that take one of a few words: what each word stands for, and its help text.

use bothends_bench::ops::{Draw, Form, Part};
use bothends_core::epoch::Recovery;
use bothends_core::plan::{LastPolicy, Shuffle};
use bothends_core::recipe::Numerics;
use bothends_core::tensor::{Dtype, Layout};
use bothends_runtime::{PageCacheUse, ReaderKind, SideIndexUse};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A word, what is said of it, and what it stands for.
type Word<T> = (&'static str, &'static str, T);

pub(crate) const SHUFFLES: &[Word<Shuffle>] =
    &[("none", "", Shuffle::None), ("full", "", Shuffle::Full)];

pub(crate) const READERS: &[Word<ReaderKind>] = &[
    ("auto", "", ReaderKind::Auto),
    ("io_uring", "", ReaderKind::Uring),
    ("pread", "", ReaderKind::Pread),
];

pub(crate) const SIDE_INDICES: &[Word<SideIndexUse>] = &[
    (
        "auto",
        "In the cache directory ($XDG_CACHE_HOME/bothends), at most 20 GiB for all data sets",
        SideIndexUse::Auto,
    ),
    (
        "beside",
        "With the data, for storage that several machines share",
        SideIndexUse::Beside,
    ),
    (
        "off",
        "Neither read nor written; nor are the prongs' rates remembered from run to run",
        SideIndexUse::Off,
    ),
];

pub(crate) const PAGE_CACHES: &[Word<PageCacheUse>] = &[
    (
        "auto",
        "Through it if the data set fits into half of the available memory",
        PageCacheUse::Auto,
    ),
    ("through", "Through it", PageCacheUse::Through),
    ("past", "Past it, if the file system allows that (O_DIRECT)", PageCacheUse::Past),
];

pub(crate) const DTYPES: &[Word<Dtype>] = &[
    ("u8", "", Dtype::U8),
    ("f32", "", Dtype::F32),
    ("f16", "", Dtype::F16),
    ("bf16", "", Dtype::Bf16),
];

pub(crate) const LAYOUTS: &[Word<Layout>] =
    &[("nhwc", "", Layout::Nhwc), ("nchw", "", Layout::Nchw)];

pub(crate) const LASTS: &[Word<LastPolicy>] = &[
    ("drop", "", LastPolicy::Drop),
    ("pad", "", LastPolicy::Pad),
    ("wrap", "", LastPolicy::Wrap),
    ("even", "", LastPolicy::Even),
];

pub(crate) const RECOVERIES: &[Word<Recovery>] =
    &[("on", "", Recovery::On), ("off", "", Recovery::Off)];

pub(crate) const KNOWN: &[Word<bool>] = &[("on", "", true), ("off", "", false)];

pub(crate) const NUMERICS: &[Word<&[Numerics]>] = &[
    ("exact", "", &[Numerics::Exact]),
    ("planar", "", &[Numerics::Planar]),
    ("both", "", &[Numerics::Exact, Numerics::Planar]),
];

pub(crate) const FORMS: &[Word<Form>] = &[
    ("first", "A file, as in the first epoch", Form::First),
    ("index", "A file with its side index from an earlier visit", Form::Index),
    ("store", "The blocks of a store", Form::Store),
];

pub(crate) const DRAWS: &[Word<Draw>] =
    &[("once", "", Draw::Once), ("every-pass", "", Draw::EveryPass)];

pub(crate) const PARTS: &[Word<Part>] = &[
    ("read", "Opening and reading each file", Part::Read),
    ("stages", "On one thread: the time for an image and for each stage", Part::Stages),
    ("rates", "Images per second by number of threads", Part::Rates),
];

pub(crate) const BENCH_READERS: &[Word<&[ReaderKind]>] = &[
    ("io_uring", "", &[ReaderKind::Uring]),
    ("pread", "", &[ReaderKind::Pread]),
    ("both", "", &[ReaderKind::Uring, ReaderKind::Pread]),
];

/// A flag that takes one of `words`.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static>(
    words: &'static [Word<T>],
) -> impl TypedValueParser<Value = T> {
    let possible = words.iter().map(|(word, about, _)| {
        PossibleValue::new(*word).help((!about.is_empty()).then_some(*about))
    });
    let parser = PossibleValuesParser::new(possible);
    parser.try_map(|typed| {
        let found = words.iter().find(|(word, ..)| *word == typed);
        found.map(|(.., value)| value.clone()).ok_or("no such word")
    })
}

pub(crate) fn at_least_1() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}
