//! Data roots whose shards are compressed: hosts name the files that come of these, so they are made here as well.

use std::io;

use bothends_decompress::{
    DecompressError, Decompressed, Place, Watch, decompress_folder,
};

use super::{DataRoot, StoreError};

/// Data roots as they are read from.
#[derive(Debug)]
pub struct ReadyRoots {
    /// The folders and URLs.
    pub roots: Vec<DataRoot>,
    /// Those of the folders that others may not remove yet.
    made: Vec<Decompressed>,
}

impl ReadyRoots {
    /// Decompresses the data sets in those of these roots that are folders into `place` where their first shards are compressed; without a
    /// place, roots stay as they are. Blocks on storage and file system, in the first case for as long as it takes
    /// to read and write all of the data.
    ///
    /// # Errors
    /// A data set that cannot be decompressed.
    pub fn of(
        roots: &[DataRoot],
        place: Option<&Place>,
        watch: &Watch,
    ) -> Result<Self, StoreError> {
        let (roots, mut made) = (roots.to_vec(), Vec::new());
        let Some(place) = place else { return Ok(Self { roots, made }) };
        let roots = roots.into_iter().map(|root| {
            let wrong = |error: DecompressError| StoreError {
                path: root.path.clone(),
                source: io::Error::other(error.to_string()),
            };
            // A remote store may have millions of objects, of which a host has the list.
            let is_folder = root.path.is_dir();
            let ready = is_folder.then(|| decompress_folder(&root.path, place, watch));
            match ready.transpose().map_err(wrong)?.flatten() {
                None => Ok(root),
                Some(ready) => {
                    let path = ready.root().to_owned();
                    made.push(ready);
                    Ok(DataRoot { path, ..root })
                }
            }
        });
        let roots = roots.collect::<Result<_, _>>()?;
        Ok(Self { roots, made })
    }

    /// Where data sets were decompressed, for people.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.made.iter().map(|made| {
            format!(
                "the shards are compressed; they are served decompressed: {}, {} MiB",
                made.root().display(),
                made.bytes() >> 20
            )
        })
    }
}
