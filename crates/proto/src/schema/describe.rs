//! From descriptors to facts.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
};

use super::{Error, Schema, Subject};

/// A reserved range is written out number by number; a wider one is surely a slip.
const WIDEST_RESERVED_RANGE: i32 = 1_000;

impl Schema {
    /// The facts of an encoded `google.protobuf.FileDescriptorSet`. Options, comments and files do not count: they are
    /// not on the wire.
    ///
    /// # Errors
    /// The bytes do not decode, or lack what every compiler writes.
    pub fn decode(descriptor_set: &[u8]) -> Result<Self, Error> {
        let set = FileDescriptorSet::decode(descriptor_set)?;
        let mut describer = Describer { facts: BTreeMap::new() };
        for file in &set.file {
            let scope = file.package().to_owned();
            for message in &file.message_type {
                describer.message(&scope, message)?;
            }
            for item in &file.enum_type {
                describer.enumeration(&scope, item)?;
            }
            for service in &file.service {
                describer.service(&scope, service);
            }
        }
        Ok(Self { facts: describer.facts })
    }
}

struct Describer {
    facts: BTreeMap<Subject, String>,
}

impl Describer {
    fn message(&mut self, scope: &str, message: &DescriptorProto) -> Result<(), Error> {
        let name = format!("{scope}.{}", message.name());
        self.facts.insert(Subject::Message(name.clone()), "present".to_owned());
        for field in &message.field {
            let fact = field_fact(&name, message, field)?;
            self.facts.insert(Subject::Field(name.clone(), field.number()), fact);
        }
        for range in &message.reserved_range {
            // The end of a message's range is exclusive, that of an enum's is inclusive.
            self.reserved(&name, range.start(), range.end().saturating_sub(1))?;
        }
        for nested in &message.nested_type {
            // A map's entry type is described by the map field.
            if !nested.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry) {
                self.message(&name, nested)?;
            }
        }
        for nested in &message.enum_type {
            self.enumeration(&name, nested)?;
        }
        Ok(())
    }

    fn enumeration(&mut self, scope: &str, item: &EnumDescriptorProto) -> Result<(), Error> {
        let name = format!("{scope}.{}", item.name());
        self.facts.insert(Subject::Enum(name.clone()), "present".to_owned());
        for value in &item.value {
            self.facts.insert(Subject::Value(name.clone(), value.number()), value.name().to_owned());
        }
        for range in &item.reserved_range {
            self.reserved(&name, range.start(), range.end())?;
        }
        Ok(())
    }

    fn service(&mut self, scope: &str, service: &ServiceDescriptorProto) {
        let name = format!("{scope}.{}", service.name());
        self.facts.insert(Subject::Service(name.clone()), "present".to_owned());
        for method in &service.method {
            let side = |streaming: bool, kind: &str| {
                format!("{}{}", if streaming { "stream " } else { "" }, kind.trim_start_matches('.'))
            };
            let fact = format!(
                "({}) -> ({})",
                side(method.client_streaming(), method.input_type()),
                side(method.server_streaming(), method.output_type())
            );
            self.facts.insert(Subject::Rpc(name.clone(), method.name().to_owned()), fact);
        }
    }

    fn reserved(&mut self, owner: &str, first: i32, last: i32) -> Result<(), Error> {
        if last.saturating_sub(first) > WIDEST_RESERVED_RANGE {
            return Err(Error::Incomplete(format!(
                "{owner} reserves {first} to {last}; reserve at most {WIDEST_RESERVED_RANGE} numbers at once"
            )));
        }
        for number in first..=last {
            self.facts.insert(Subject::Reserved(owner.to_owned(), number), "tombstone".to_owned());
        }
        Ok(())
    }
}

/// `name type label json=name`, then the oneof that the field belongs to.
fn field_fact(owner: &str, message: &DescriptorProto, field: &FieldDescriptorProto) -> Result<String, Error> {
    let incomplete = |what: &str| Error::Incomplete(format!("{owner}.{} {what}", field.name()));
    let entry = message.nested_type.iter().find(|nested| {
        nested.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry)
            && field.type_name() == format!(".{owner}.{}", nested.name())
    });
    let kind = match entry {
        None => type_name(field).ok_or_else(|| incomplete("has no known type"))?,
        Some(entry) => match entry.field.as_slice() {
            [key, value] => format!(
                "map<{},{}>",
                type_name(key).ok_or_else(|| incomplete("has no known key type"))?,
                type_name(value).ok_or_else(|| incomplete("has no known value type"))?
            ),
            _ => return Err(incomplete("is a map whose entry has not two fields")),
        },
    };
    let label = match field.label() {
        _ if entry.is_some() => "map",
        Label::Repeated if is_packed(field) => "repeated(packed)",
        Label::Repeated => "repeated",
        Label::Optional if field.proto3_optional() => "optional",
        Label::Optional => "singular",
        Label::Required => "required",
    };
    let mut fact = format!("{} {kind} {label} json={}", field.name(), field.json_name());
    if let Some(index) = field.oneof_index
        && !field.proto3_optional()
    {
        let oneof = usize::try_from(index).ok().and_then(|index| message.oneof_decl.get(index));
        let oneof = oneof.ok_or_else(|| incomplete("belongs to a oneof that does not exist"))?;
        fact.push_str(" oneof=");
        fact.push_str(oneof.name());
    }
    Ok(fact)
}

/// Numbers in a repeated proto3 field are packed unless it says otherwise.
fn is_packed(field: &FieldDescriptorProto) -> bool {
    !matches!(field.r#type(), Type::String | Type::Bytes | Type::Message | Type::Group)
        && field.options.as_ref().is_none_or(|options| options.packed.unwrap_or(true))
}

fn type_name(field: &FieldDescriptorProto) -> Option<String> {
    Some(match Type::try_from(field.r#type?).ok()? {
        Type::Message | Type::Enum | Type::Group => field.type_name().trim_start_matches('.').to_owned(),
        scalar => scalar.as_str_name().strip_prefix("TYPE_")?.to_lowercase(),
    })
}
