//! A Parquet file with all columns plain and uncompressed: the place of each image can then be told.
//!
//! Values and levels are copied column by column, some rows at a time. Schema, row groups and metadata stay.

use std::fs::File;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};

/// Rows that are copied at a time: each may hold an image of some megabytes.
const ROWS: usize = 32;

/// Bytes of a page, beyond which the next begins.
const PAGE_BYTES: usize = 1 << 20;

/// Writes the Parquet file `from` to `to`, plain.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] for a compression that is not supported; what is wrong with the file, or
/// writing it.
pub(crate) fn plain(from: File, to: impl Write + Send) -> io::Result<()> {
    // The package that reads it is made for files of friends: some damage is found by an index out of bounds.
    let done = catch_unwind(AssertUnwindSafe(|| copied(from, to)));
    match done {
        Ok(Err(Stop::Codec(codec))) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, codec))
        }
        Ok(Err(Stop::Parquet(error))) => Err(io::Error::other(error)),
        Ok(Ok(())) => Ok(()),
        Err(_) => Err(io::Error::other("it is damaged")),
    }
}

/// Why no plain file comes of it.
enum Stop {
    /// A compression that is not supported.
    Codec(&'static str),
    Parquet(ParquetError),
}

impl From<ParquetError> for Stop {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
}

/// That all columns have compressions that are read.
fn check(columns: &[ColumnChunkMetaData]) -> std::result::Result<(), Stop> {
    let codecs = columns.iter().map(ColumnChunkMetaData::compression);
    for codec in codecs {
        match codec {
            Compression::BROTLI(_) => return Err(Stop::Codec("brotli")),
            Compression::LZO => return Err(Stop::Codec("LZO")),
            Compression::UNCOMPRESSED
            | Compression::SNAPPY
            | Compression::GZIP(_)
            | Compression::LZ4
            | Compression::LZ4_RAW
            | Compression::ZSTD(_) => {}
        }
    }
    Ok(())
}

fn copied(from: File, to: impl Write + Send) -> std::result::Result<(), Stop> {
    let from = SerializedFileReader::new(from)?;
    let about = from.metadata().file_metadata();
    let schema = about.schema_descr().root_schema_ptr();
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_write_batch_size(ROWS)
        .set_key_value_metadata(about.key_value_metadata().cloned());
    let properties = Arc::new(properties.build());
    let mut to = SerializedFileWriter::new(to, schema, properties)?;
    for nth in 0..from.num_row_groups() {
        let group = from.get_row_group(nth)?;
        check(group.metadata().columns())?;
        let mut written = to.next_row_group()?;
        for nth in 0..group.num_columns() {
            let column = group.get_column_reader(nth)?;
            let Some(mut to) = written.next_column()? else {
                return Err(
                    ParquetError::General("a column is missing".to_owned()).into()
                );
            };
            copy(column, &mut to)?;
            to.close()?;
        }
        written.close()?;
    }
    to.close()?;
    Ok(())
}

fn copy(column: ColumnReader, to: &mut SerializedColumnWriter<'_>) -> Result<()> {
    match column {
        ColumnReader::BoolColumnReader(column) => values(column, to),
        ColumnReader::Int32ColumnReader(column) => values(column, to),
        ColumnReader::Int64ColumnReader(column) => values(column, to),
        ColumnReader::Int96ColumnReader(column) => values(column, to),
        ColumnReader::FloatColumnReader(column) => values(column, to),
        ColumnReader::DoubleColumnReader(column) => values(column, to),
        ColumnReader::ByteArrayColumnReader(column) => values(column, to),
        ColumnReader::FixedLenByteArrayColumnReader(column) => values(column, to),
    }
}

fn values<T: DataType>(
    mut column: ColumnReaderImpl<T>,
    to: &mut SerializedColumnWriter<'_>,
) -> Result<()> {
    let to = to.typed::<T>();
    let descriptor = to.get_descriptor();
    let (is_optional, is_repeated) =
        (descriptor.max_def_level() > 0, descriptor.max_rep_level() > 0);
    let (mut values, mut definition, mut repetition) =
        (Vec::new(), Vec::new(), Vec::new());
    loop {
        values.clear();
        definition.clear();
        repetition.clear();
        let (n_rows, ..) = column.read_records(
            ROWS,
            is_optional.then_some(&mut definition),
            is_repeated.then_some(&mut repetition),
            &mut values,
        )?;
        if n_rows == 0 {
            return Ok(());
        }
        to.write_batch(
            &values,
            is_optional.then_some(&definition[..]),
            is_repeated.then_some(&repetition[..]),
        )?;
    }
}
