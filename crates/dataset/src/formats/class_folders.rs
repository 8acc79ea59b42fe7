//! Class folders: the name of a folder is the class, and the images in it are its samples.
//!
//! Labels and order are those of torchvision's `ImageFolder` (0.21, `find_classes` and `make_dataset`):
//! classes sorted by name, folders below a class visited in the order of their paths, and files sorted by
//! name; case-sensitive, by code point. Three things differ, so that a label never means something other
//! than the user thinks:
//!
//! * hidden names (`.cache`, `._a.jpg`) are skipped;
//! * a folder whose classes hold no images directly, only deeper ones (`train/`, `val/`), is refused;
//! * a folder of images without any class folder is read with label 0 throughout, with a note.
//!
//! Images are not opened here: a broken one is found when it is decoded.

use bothends_core::sample::{Encoding, Extent};

use crate::error::DatasetError;
use crate::formats::{Format, Found};
use crate::storage::{Entry, Kind, Storage, list};
use crate::table::TableBuilder;
use crate::{path, side_index};

/// Levels below a class folder that are searched; a link that leads back ends here.
const MAX_DEPTH: u32 = 16;

/// Those of torchvision's `IMG_EXTENSIONS`.
const EXTENSIONS: [&str; 9] =
    ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];

/// Whether the name ends like an image that `ops` decodes, in any case.
pub(crate) fn is_image(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| {
        EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Whether the entry makes its folder look like this format.
pub(crate) fn is_class_or_image(entry: &Entry) -> bool {
    !is_hidden(entry) && (entry.kind == Kind::Folder || is_image(&entry.name))
}

fn is_hidden(entry: &Entry) -> bool {
    entry.name.starts_with('.')
}

/// Reads the class folders in `root`, or the images in it when it has no folders.
pub(crate) fn parse(storage: &dyn Storage, root: &str) -> Result<Found, DatasetError> {
    let mut search = Search {
        storage,
        builder: TableBuilder::new(Encoding::Image),
        n_images: 0,
        n_ignored: 0,
    };
    let (hidden, seen): (Vec<_>, Vec<_>) =
        list(storage, root)?.into_iter().partition(is_hidden);
    let foreign = |entry: &&Entry| !side_index::is_segment(&entry.name);
    search.n_ignored += hidden.iter().filter(foreign).count() as u64;
    let (classes, files): (Vec<_>, Vec<_>) =
        seen.into_iter().partition(|entry| entry.kind == Kind::Folder);
    let note = if classes.is_empty() {
        search.images(root, &files, 0)?;
        Some("there are no class folders: every label is 0")
    } else {
        search.n_ignored += files.len() as u64;
        search.classes(root, &classes)?;
        None
    };
    search.builder.whole_files();
    if search.n_images == 0 {
        let path = storage.shown(root);
        return Err(DatasetError::NoImages { path, n_ignored: search.n_ignored });
    }
    let table = search.builder.build()?;
    Ok(Found::new(Format::ClassFolders, table, search.n_ignored, note))
}

/// The table in the making, and what was met on the way.
struct Search<'a> {
    storage: &'a dyn Storage,
    builder: TableBuilder,
    n_images: u64,
    n_ignored: u64,
}

/// A class's folders and those below it, with the files in each.
type Folders = Vec<(String, Vec<Entry>)>;

impl Search<'_> {
    fn classes(&mut self, root: &str, classes: &[Entry]) -> Result<(), DatasetError> {
        let mut first_empty = None;
        let mut own_images = false;
        for class in classes {
            let folder = path::join(root, &class.name);
            let label = self.builder.class(&class.name)?;
            let mut folders = Folders::new();
            self.collect(&folder, 0, &mut folders)?;
            folders.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            let before = self.n_images;
            for (path, files) in &folders {
                self.images(path, files, label)?;
                own_images |=
                    *path == folder && files.iter().any(|file| is_image(&file.name));
            }
            if self.n_images == before {
                first_empty.get_or_insert(folder);
            }
        }
        let shown = |path: &str| self.storage.shown(path);
        match first_empty {
            _ if self.n_images == 0 => Ok(()),
            _ if !own_images => {
                let path = shown(&path::join(root, &classes[0].name));
                Err(DatasetError::Nested { path })
            }
            Some(folder) => Err(DatasetError::EmptyClass { path: shown(&folder) }),
            None => Ok(()),
        }
    }

    fn collect(
        &mut self,
        folder: &str,
        depth: u32,
        out: &mut Folders,
    ) -> Result<(), DatasetError> {
        if depth > MAX_DEPTH {
            let path = self.storage.shown(folder);
            return Err(DatasetError::TooDeep { path, max: MAX_DEPTH });
        }
        let mut files = Vec::new();
        for entry in list(self.storage, folder)? {
            if is_hidden(&entry) {
                self.n_ignored += u64::from(!side_index::is_segment(&entry.name));
            } else if entry.kind == Kind::Folder {
                self.collect(&path::join(folder, &entry.name), depth + 1, out)?;
            } else {
                files.push(entry);
            }
        }
        out.push((folder.to_owned(), files));
        Ok(())
    }

    fn images(
        &mut self,
        folder: &str,
        files: &[Entry],
        label: u32,
    ) -> Result<(), DatasetError> {
        for entry in files {
            let Kind::File { len: len_bytes } = entry.kind else { continue };
            if !is_image(&entry.name) {
                self.n_ignored += 1;
                continue;
            }
            let path = path::join(folder, &entry.name);
            let len = u32::try_from(len_bytes).map_err(|_| {
                DatasetError::RecordTooLong { path: self.storage.shown(&path), len_bytes }
            })?;
            let file = self.builder.file(&path)?;
            self.builder.sample(Extent { file, offset: 0, len }, label);
            self.n_images += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{Label, SampleId};

    use super::*;
    use crate::Table;
    use crate::conformance::{self, MemoryStorage};

    fn rows(table: &Table) -> Vec<(String, i64)> {
        let ids = (0..table.n_samples()).map(SampleId);
        ids.map(|id| (table.file_path(table.extent(id).file), table.label(id).0))
            .collect()
    }

    fn found(files: &[&str]) -> Result<Found, DatasetError> {
        let mut storage = MemoryStorage::new();
        for file in files {
            storage = storage.with(file, file.as_bytes());
        }
        let found = crate::find(&storage, "")?;
        conformance::check(&storage, &found);
        Ok(found)
    }

    fn message(files: &[&str]) -> String {
        found(files).unwrap_err().to_string()
    }

    #[test]
    fn classes_and_files_are_sorted_and_other_files_are_counted() {
        let found = found(&[
            "cat/2.JPEG",
            "cat/10.jpg",
            "cat/readme.txt",
            "Zebra/z.PNG",
            "ant/a.jpeg",
            "LICENSE",
            ".cache/x.jpg",
            "ant/._a.jpeg",
        ])
        .unwrap();
        let expected = [
            ("Zebra/z.PNG".to_owned(), 0),
            ("ant/a.jpeg".to_owned(), 1),
            ("cat/10.jpg".to_owned(), 2),
            ("cat/2.JPEG".to_owned(), 2),
        ];
        assert_eq!(rows(&found.table), expected);
        assert_eq!(
            found.table.class_names().collect::<Vec<_>>(),
            ["Zebra", "ant", "cat"]
        );
        assert_eq!(found.n_ignored, 4);
        assert_eq!(found.note, None);
        assert_eq!(found.table.extent(SampleId(0)).len, 11);
    }

    /// The order is that of torchvision, which sorts the paths of the folders: `a`, `a-b`,
    /// `a/b`, since `-` comes before `/`.
    #[test]
    fn folders_below_a_class_come_in_torchvisions_order() {
        let found =
            found(&["c/a/b/3.png", "c/a-b/2.png", "c/a/1.png", "c/0.png"]).unwrap();
        let paths: Vec<_> = rows(&found.table).into_iter().map(|row| row.0).collect();
        assert_eq!(paths, ["c/0.png", "c/a/1.png", "c/a-b/2.png", "c/a/b/3.png"]);
    }

    #[test]
    fn images_without_class_folders_have_label_0_and_a_note() {
        let found = found(&["b.jpg", "a.jpg", "notes.txt"]).unwrap();
        assert_eq!(
            rows(&found.table),
            [("a.jpg".to_owned(), 0), ("b.jpg".to_owned(), 0)]
        );
        assert!(found.note.unwrap().contains("label is 0"));
        assert_eq!(found.table.class_names().len(), 0);
        assert_eq!(found.table.label(SampleId(1)), Label(0));
        assert_eq!(found.n_ignored, 1);
    }

    #[test]
    fn a_folder_that_is_no_data_set_is_refused_with_its_name() {
        let empty = MemoryStorage::new();
        let error = crate::find(&empty, "").unwrap_err().to_string();
        assert!(error.starts_with("`/data` is empty"), "{error}");
        assert!(
            message(&["a/x.txt", "y.txt"]).starts_with("no image in `/data` (2 other")
        );
        assert!(message(&["x.txt"]).starts_with("cannot tell what data `/data` holds"));
        assert!(message(&["a/x.jpg", "b/y.txt"]).contains("class folder `/data/b`"));
        assert!(
            message(&["train/a/x.jpg", "val/a/y.jpg"]).starts_with("`/data/train` holds")
        );
    }

    #[test]
    fn a_missing_target_is_named() {
        let storage = MemoryStorage::new().with("a/x.jpg", b"");
        let error = crate::find(&storage, "b").unwrap_err().to_string();
        assert!(error.starts_with("cannot open `/data/b`"), "{error}");
    }

    #[test]
    fn a_folder_that_contains_itself_ends_in_an_error() {
        let deep = format!("c/{}x.jpg", "d/".repeat(40));
        assert!(message(&["c/y.jpg", &deep]).contains("more than 16 levels deep"));
    }
}
