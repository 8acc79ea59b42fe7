//! Keeps a broken link broken: after the first lost link or malformed message, every call fails in the
//! same way (contract 4 of `Transport`).

use std::io;

use crate::CsdError;

/// Whole until the first error that ends a link.
#[derive(Debug, Default)]
pub(crate) struct Fuse(Option<Blown>);

#[derive(Debug)]
enum Blown {
    Lost { doing: &'static str, kind: io::ErrorKind, what: String },
    Malformed { what: &'static str },
}

impl Fuse {
    /// Fails as the first failure did.
    pub(crate) fn check(&self) -> Result<(), CsdError> {
        match &self.0 {
            None => Ok(()),
            Some(Blown::Lost { doing, kind, what }) => Err(CsdError::LinkLost {
                doing,
                source: io::Error::new(*kind, what.clone()),
            }),
            Some(Blown::Malformed { what }) => Err(CsdError::Malformed { what }),
        }
    }

    /// Passes `result` on and remembers what ended the link.
    pub(crate) fn watch<T>(
        &mut self,
        result: Result<T, CsdError>,
    ) -> Result<T, CsdError> {
        if let Err(CsdError::LinkLost { doing, source }) = &result {
            let (kind, what) = (source.kind(), source.to_string());
            self.0.get_or_insert(Blown::Lost { doing, kind, what });
        }
        if let Err(CsdError::Malformed { what }) = &result {
            self.0.get_or_insert(Blown::Malformed { what });
        }
        result
    }
}
