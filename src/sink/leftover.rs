//! What lies beside a destination and is not visible in it.

use serde::Serialize;

use crate::identity::{AttemptNonce, CheckpointId, StoreId};
use crate::store::parse_output_name;

/// One file beside a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Its path in the folder beside the destination.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// When it was last written, milliseconds since 1970.
    pub modified: i64,
}

impl Leftover {
    /// The attempt of `store` that wrote it; `None` for what is not an output file of this store.
    pub(crate) fn attempt(&self, store: StoreId) -> Option<(CheckpointId, AttemptNonce)> {
        let (folder, name) = self.path.split_once('/')?;
        let name = match folder {
            "staged" => name,
            // Set aside under its name and a nonce.
            "unfit" => name.rsplit_once('-')?.0,
            _ => return None,
        };
        let (of, id, attempt) = parse_output_name(name)?;
        (of == store.short()).then_some((id, attempt))
    }

    /// Whether it is a binding that a crash kept from getting its name. Removed while it is being made, it is made again.
    pub(crate) fn is_unfinished_binding(&self) -> bool {
        self.path.strip_prefix("binding-").is_some_and(|nonce| nonce.parse::<AttemptNonce>().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Epoch, InputId};
    use crate::store::output_name;

    #[test]
    fn a_leftover_is_traced_to_its_attempt_only_by_its_whole_name() {
        let (store, id, attempt) =
            (StoreId::random(), CheckpointId::first(Epoch(3), InputId(7)), AttemptNonce::random());
        let name = output_name(&store.short(), id, attempt, 2, "parquet");
        let at = |path: String| Leftover { path, size: 1, modified: 0 };
        let aside = format!("unfit/{name}-{}", AttemptNonce::random());
        for path in [format!("staged/{name}"), aside] {
            assert_eq!(at(path).attempt(store), Some((id, attempt)));
        }
        let others = [
            format!("staged/{name}").replacen(&store.short(), &StoreId::random().short(), 1),
            format!("store/{name}"),
            name.clone(),
            format!("staged/x-{name}"),
            "staged/notes.txt".into(),
            "binding.json".into(),
        ];
        for path in others {
            assert_eq!(at(path.clone()).attempt(store), None, "{path}");
        }
        assert!(at(format!("binding-{attempt}")).is_unfinished_binding());
        assert!(!at("binding.json".into()).is_unfinished_binding());
    }
}
