//! What a table asks of its writers, and which of it this version does.

use std::collections::HashMap;

use lakemark::{Error, ErrorKind, Result};
use serde_json::Value;

/// Features of writers that an append need not know of, or that are refused below where they are in use.
const KNOWN: [&str; 16] = [
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "identityColumns",
    "columnMapping",
    "timestampNtz",
    "deletionVectors",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "domainMetadata",
    "inCommitTimestamp",
    "rowTracking",
    "allowColumnDefaults",
    "clustering",
];

/// What a table's protocol and metadata say to writers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demands<'a> {
    pub(crate) reader_version: i32,
    pub(crate) writer_version: i32,
    pub(crate) writer_features: &'a [String],
    pub(crate) configuration: &'a HashMap<String, String>,
    /// Delta's schema.
    pub(crate) schema: &'a Value,
}

impl Demands<'_> {
    /// Checks that appends of this version meet them; `ntz`: of rows with timestamps without a zone.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported), naming the feature.
    pub(crate) fn check(&self, ntz: bool) -> Result<()> {
        if let Some(feature) = self.unmet() {
            return Err(unsupported(format!("the table uses {feature}, which this version does not write")));
        }
        let has_ntz = self.writer_version == 7 && self.has("timestampNtz");
        if ntz && !has_ntz {
            let what = "the query has timestamps without a zone, and the table lacks the feature timestampNtz";
            return Err(unsupported(what.into()).way("add the feature to the table: delta.feature.timestampNtz"));
        }
        Ok(())
    }

    fn has(&self, feature: &str) -> bool {
        self.writer_features.iter().any(|has| has == feature)
    }

    fn is_set(&self, key: &str) -> bool {
        self.configuration.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The first thing that a writer must do, and this one does not.
    fn unmet(&self) -> Option<String> {
        if self.reader_version > 3 || !(1..=7).contains(&self.writer_version) {
            return Some(format!("reader version {} and writer version {}", self.reader_version, self.writer_version));
        }
        if self.writer_version == 7
            && let Some(unknown) = self.writer_features.iter().find(|has| !KNOWN.contains(&has.as_str()))
        {
            return Some(format!("the feature {unknown}"));
        }
        let mapping = self.configuration.get("delta.columnMapping.mode");
        if let Some(mode) = mapping.filter(|mode| !mode.eq_ignore_ascii_case("none")) {
            return Some(format!("column mapping (delta.columnMapping.mode = {mode})"));
        }
        if let Some(constraint) = self.configuration.keys().find(|key| key.starts_with("delta.constraints.")) {
            return Some(format!("the check constraint {constraint}"));
        }
        // Row ids must be given from the moment the feature is there, not only where it is switched on.
        let gives_row_ids = self.has("rowTracking") && !self.is_set("delta.rowTrackingSuspended");
        if gives_row_ids || self.is_set("delta.enableRowTracking") {
            return Some("row tracking (rowTracking)".into());
        }
        for key in ["delta.enableInCommitTimestamps", "delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2"] {
            if self.is_set(key) {
                return Some(key.into());
            }
        }
        if self.is_set("delta.enableIcebergCompatV3") {
            return Some("delta.enableIcebergCompatV3".into());
        }
        fields_with_rules(self.schema)
    }
}

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, what).safe("nothing was written to the table").way("write to another table")
}

/// The first column, at any depth, whose values a writer must check or make.
fn fields_with_rules(of: &Value) -> Option<String> {
    for field in of["fields"].as_array().into_iter().flatten() {
        let rules = field["metadata"].as_object();
        let is_rule = |key: &&String| {
            matches!(key.as_str(), "delta.invariants" | "delta.generationExpression")
                || key.starts_with("delta.identity.")
        };
        if let Some(rule) = rules.and_then(|rules| rules.keys().find(is_rule)) {
            return Some(format!("{rule} of column `{}`", field["name"].as_str().unwrap_or_default()));
        }
        if let Some(found) = fields_with_rules(&field["type"]) {
            return Some(found);
        }
    }
    ["elementType", "keyType", "valueType"].iter().find_map(|inner| fields_with_rules(of.get(inner)?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn check(
        versions: (i32, i32),
        features: &[&str],
        configuration: &[(&str, &str)],
        schema: &Value,
        ntz: bool,
    ) -> Result<()> {
        let writer_features: Vec<String> = features.iter().map(|feature| (*feature).to_owned()).collect();
        let configuration = configuration.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let (reader_version, writer_version) = versions;
        Demands {
            reader_version,
            writer_version,
            writer_features: &writer_features,
            configuration: &configuration,
            schema,
        }
        .check(ntz)
    }

    #[rstest]
    #[case::reader((4, 7), &[], &[], "reader version 4")]
    #[case::writer((1, 8), &[], &[], "writer version 8")]
    #[case::feature((3, 7), &["typeWidening"], &[], "typeWidening")]
    #[case::mapping((2, 5), &[], &[("delta.columnMapping.mode", "name")], "column mapping")]
    #[case::constraint((1, 3), &[], &[("delta.constraints.positive", "a > 0")], "delta.constraints.positive")]
    #[case::rows((1, 7), &["rowTracking"], &[], "row tracking")]
    #[case::rows_on((1, 7), &["rowTracking"], &[("delta.enableRowTracking", "true")], "row tracking")]
    #[case::clock((1, 7), &["inCommitTimestamp"], &[("delta.enableInCommitTimestamps", "true")], "InCommit")]
    #[case::iceberg((2, 5), &[], &[("delta.enableIcebergCompatV1", "true")], "IcebergCompatV1")]
    fn what_a_writer_must_do_is_refused_by_name(
        #[case] versions: (i32, i32),
        #[case] features: &[&str],
        #[case] configuration: &[(&str, &str)],
        #[case] named: &str,
    ) {
        let error = check(versions, features, configuration, &json!({}), false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(named), "{error}");
    }

    #[rstest]
    #[case("delta.invariants")]
    #[case("delta.generationExpression")]
    #[case("delta.identity.start")]
    fn rules_of_columns_are_found_at_any_depth(#[case] rule: &str) {
        let column = json!({ "name": "c", "type": "long", "metadata": { rule: "1" } });
        let within = json!({ "type": "struct", "fields": [column] });
        let list = json!({ "type": "array", "elementType": within });
        for of in [within.clone(), json!({ "fields": [{ "name": "l", "type": list, "metadata": {} }] })] {
            let error = check((1, 6), &[], &[], &of, false).unwrap_err();
            assert!(error.to_string().contains(rule) && error.to_string().contains("`c`"), "{error}");
        }
    }

    #[test]
    fn what_an_append_need_not_know_of_is_taken() {
        let mapped_by_none = [("delta.columnMapping.mode", "none"), ("delta.enableRowTracking", "false")];
        assert!(check((3, 7), &["deletionVectors", "appendOnly"], &mapped_by_none, &json!({}), false).is_ok());
        let suspended = [("delta.rowTrackingSuspended", "true")];
        assert!(check((1, 7), &["rowTracking"], &suspended, &json!({}), false).is_ok());
        assert!(check((1, 2), &[], &[], &json!({}), false).is_ok());
        assert!(check((3, 7), &["timestampNtz"], &[], &json!({}), true).is_ok());
        let error = check((1, 2), &[], &[], &json!({}), true).unwrap_err();
        assert!(error.to_string().contains("timestampNtz"), "{error}");
    }
}
