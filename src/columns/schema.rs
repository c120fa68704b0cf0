//! Columns of a message with their Arrow types.
//!
//! Types, nullability and inner names match Spark's DDL, so schemas compare equal: times are UTC
//! microseconds, a list's field is `element`, a map's are `entries`, `key` and `value`, and
//! everything but a map's key is nullable.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::named;

named! {
    /// A column of a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Column {
        /// The broker; null when reading one store.
        Broker = "broker",
        /// The topic.
        Topic = "topic",
        /// The queue.
        QueueId = "queue_id",
        /// Queue offset.
        QueueOffset = "queue_offset",
        /// The record's offset in the commit log.
        PhysicalOffset = "physical_offset",
        /// Length of the record.
        StoreSize = "store_size",
        /// Store time.
        StoreTimestamp = "store_timestamp",
        /// Producer's time.
        BornTimestamp = "born_timestamp",
        /// Property `TAGS`.
        Tags = "tags",
        /// Property `KEYS`, split.
        Keys = "keys",
        /// Property `UNIQ_KEY`.
        UniqueKey = "unique_key",
        /// The store's message id.
        MessageId = "message_id",
        /// All properties.
        Properties = "properties",
        /// The decompressed body.
        Body = "body",
        /// The stored body.
        RawBody = "raw_body",
        /// Checksum of the stored body.
        BodyCrc = "body_crc",
        /// RocketMQ's flags.
        SysFlag = "sys_flag",
        /// The user's flag.
        Flag = "flag",
        /// Producer's address.
        BornHost = "born_host",
        /// The store's address.
        StoreHost = "store_host",
        /// Number of redeliveries.
        ReconsumeTimes = "reconsume_times",
        /// Offset of a commit's half message.
        PreparedTransactionOffset = "prepared_transaction_offset",
        /// Error of a damaged range; null for a message.
        Error = "error",
        /// The whole record; not a message column.
        Record = "record",
        /// Tags code; not a message column.
        TagsCode = "tags_code",
    }
}

impl Column {
    /// Number of columns of a message.
    pub const COUNT: usize = Self::EACH.len() - 2;

    /// All columns of a message.
    pub const ALL: &'static [Self] = Self::EACH.split_at(Self::COUNT).0;

    /// Default columns of a scan.
    pub fn usual() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|column| !matches!(column, Self::RawBody | Self::Error))
    }

    /// The names of all columns of a message.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.iter().map(|column| column.name()).collect::<Vec<_>>().join(", ")
    }

    /// The column of a message of that name.
    #[must_use]
    pub fn of_message(name: &str) -> Option<Self> {
        Self::by_name(name).filter(|column| Self::ALL.contains(column))
    }

    /// Arrow type.
    #[must_use]
    pub fn data_type(self) -> DataType {
        match self {
            Self::Broker
            | Self::Topic
            | Self::Tags
            | Self::UniqueKey
            | Self::MessageId
            | Self::BornHost
            | Self::StoreHost
            | Self::Error => DataType::Utf8,
            Self::QueueId
            | Self::StoreSize
            | Self::BodyCrc
            | Self::SysFlag
            | Self::Flag
            | Self::ReconsumeTimes => DataType::Int32,
            Self::QueueOffset
            | Self::PhysicalOffset
            | Self::PreparedTransactionOffset
            | Self::TagsCode => DataType::Int64,
            Self::StoreTimestamp | Self::BornTimestamp => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
            Self::Keys => DataType::List(Arc::new(Field::new("element", DataType::Utf8, true))),
            Self::Properties => {
                let key = Field::new("key", DataType::Utf8, false);
                let value = Field::new("value", DataType::Utf8, true);
                let entries = DataType::Struct(Fields::from(vec![key, value]));
                DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
            }
            Self::Body | Self::RawBody | Self::Record => DataType::Binary,
        }
    }

    /// Arrow field.
    #[must_use]
    pub fn field(self) -> Field {
        Field::new(self.name(), self.data_type(), true)
    }

    /// The field with view types where `wanted` has them, also inside.
    #[must_use]
    pub fn field_like(self, wanted: &DataType) -> Field {
        Field::new(self.name(), like(&self.data_type(), wanted), true)
    }
}

fn like(own: &DataType, wanted: &DataType) -> DataType {
    let inner = |own: &FieldRef, wanted: &FieldRef| -> FieldRef {
        let data_type = like(own.data_type(), wanted.data_type());
        Arc::new(own.as_ref().clone().with_data_type(data_type))
    };
    match (own, wanted) {
        (DataType::Utf8, DataType::Utf8View) => DataType::Utf8View,
        (DataType::Binary, DataType::BinaryView) => DataType::BinaryView,
        (DataType::List(own), DataType::List(wanted)) => DataType::List(inner(own, wanted)),
        (DataType::Map(own, sorted), DataType::Map(wanted, _)) => {
            DataType::Map(inner(own, wanted), *sorted)
        }
        (DataType::Struct(own), DataType::Struct(wanted)) if own.len() == wanted.len() => {
            DataType::Struct(
                own.iter().zip(wanted).map(|(own, wanted)| inner(own, wanted)).collect(),
            )
        }
        _ => own.clone(),
    }
}

/// Schema of all columns.
#[must_use]
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| schema_of(Column::ALL));
    Arc::clone(&SCHEMA)
}

#[must_use]
pub fn schema_of(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|column| column.field()).collect::<Fields>()))
}

/// Schema of some columns with `wanted`'s layouts by name.
#[must_use]
pub fn schema_like(columns: &[Column], wanted: &Schema) -> SchemaRef {
    let field = |column: &Column| match wanted.column_with_name(column.name()) {
        Some((_, wanted)) => column.field_like(wanted.data_type()),
        None => column.field(),
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Fields>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_in_the_order_of_the_contract() {
        let names: Vec<_> = Column::ALL.iter().map(|column| column.name()).collect();
        assert_eq!(
            names.join(" "),
            "broker topic queue_id queue_offset physical_offset store_size store_timestamp \
             born_timestamp tags keys unique_key message_id properties body raw_body body_crc \
             sys_flag flag born_host store_host reconsume_times prepared_transaction_offset error"
        );
        for column in Column::ALL.iter() {
            assert_eq!(Column::of_message(column.name()), Some(*column));
        }
        assert_eq!(Column::by_name("Topic"), None);
        assert_eq!(Column::usual().count(), 21);
    }

    #[test]
    fn types_are_those_that_spark_makes_of_the_same_columns() {
        let ddl: Vec<_> = schema()
            .fields()
            .iter()
            .map(|field| {
                assert!(field.is_nullable());
                let kind = match field.data_type() {
                    DataType::Utf8 => "string",
                    DataType::Int32 => "int",
                    DataType::Int64 => "bigint",
                    DataType::Binary => "binary",
                    DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == "UTC" => {
                        "timestamp"
                    }
                    DataType::List(item) => {
                        assert!(item.name() == "element" && item.is_nullable());
                        "array<string>"
                    }
                    DataType::Map(entries, false) => {
                        assert!(entries.name() == "entries" && !entries.is_nullable());
                        let DataType::Struct(pair) = entries.data_type() else { panic!() };
                        assert_eq!((pair[0].name(), pair[0].is_nullable()), (&"key".into(), false));
                        assert_eq!(
                            (pair[1].name(), pair[1].is_nullable()),
                            (&"value".into(), true)
                        );
                        "map<string,string>"
                    }
                    other => panic!("{other}"),
                };
                format!("{} {kind}", field.name())
            })
            .collect();
        assert_eq!(
            ddl.join(", "),
            "broker string, topic string, queue_id int, queue_offset bigint, physical_offset \
             bigint, store_size int, store_timestamp timestamp, born_timestamp timestamp, tags \
             string, keys array<string>, unique_key string, message_id string, properties \
             map<string,string>, body binary, raw_body binary, body_crc int, sys_flag int, flag \
             int, born_host string, store_host string, reconsume_times int, \
             prepared_transaction_offset bigint, error string"
        );
    }

    #[test]
    fn views_are_taken_over_and_other_wishes_are_not() {
        let views = DataType::Utf8View;
        let list = DataType::List(Arc::new(Field::new("item", views.clone(), false)));
        let wanted = Schema::new(vec![
            Field::new("topic", views.clone(), false),
            Field::new("keys", list, false),
            Field::new("body", DataType::BinaryView, true),
            Field::new("queue_id", DataType::Int64, true),
            Field::new("tags", DataType::LargeUtf8, true),
            Field::new("no_such_column", views.clone(), true),
        ]);
        let columns = [Column::Body, Column::Keys, Column::Tags, Column::QueueId, Column::Topic];
        let schema = schema_like(&columns, &wanted);
        let types: Vec<_> =
            schema.fields().iter().map(|field| field.data_type().to_string()).collect();
        assert_eq!(schema.field(1).data_type(), &{
            DataType::List(Arc::new(Field::new("element", views, true)))
        });
        assert_eq!(
            [&types[0], &types[2], &types[3], &types[4]],
            ["BinaryView", "Utf8", "Int32", "Utf8View"]
        );
        assert!(schema.fields().iter().all(|field| field.is_nullable()));
    }
}
