//! Chooses a reader according to the machine.

use crate::IoError;
use crate::reader::{Reader, ReaderConfig, ReaderKind};
use crate::readers::pread::PreadReader;
use crate::readers::uring::UringReader;

/// Opens a reader. `Auto` tries io_uring first; [`Reader::note`] then says what it had to
/// do without.
///
/// # Errors
/// [`IoError::Setting`]; [`IoError::Ring`] when io_uring was asked for by name.
pub fn open_reader(config: &ReaderConfig) -> Result<Box<dyn Reader>, IoError> {
    config.check()?;
    match config.kind {
        ReaderKind::Pread => Ok(Box::new(PreadReader::new(config, None))),
        ReaderKind::Uring => Ok(Box::new(UringReader::new(config)?)),
        ReaderKind::Auto => match UringReader::new(config) {
            Ok(reader) => Ok(Box::new(reader)),
            Err(error) => {
                let why = std::error::Error::source(&error)
                    .map_or_else(|| error.to_string(), ToString::to_string);
                let note =
                    format!("reading with pread: io_uring is not available ({why})");
                Ok(Box::new(PreadReader::new(config, Some(note))))
            }
        },
    }
}
