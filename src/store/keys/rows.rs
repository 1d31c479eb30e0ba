//! Row keys with the checkpoints that cover them.

use std::collections::{HashMap, HashSet};

use arrow_array::{Array, ArrayRef, StringArray, UInt32Array, new_null_array};
use arrow_schema::DataType;

use crate::error::{Error, Result};
use crate::identity::CheckpointId;

/// Row keys, each with the one checkpoint that covers it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyRows {
    /// One a key.
    pub fingerprints: Vec<u128>,
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointId>,
    /// Of each key, where in `checkpoints` its own is.
    pub covered_by: Vec<u32>,
    /// The values as text, an array a key column; none where they are not kept.
    pub values: Vec<ArrayRef>,
}

impl KeyRows {
    /// The keys of one checkpoint. A fingerprint that is in it twice counts once.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when there are more or fewer values than fingerprints.
    pub fn of(id: CheckpointId, fingerprints: Vec<u128>, values: Vec<ArrayRef>) -> Result<Self> {
        if let Some(column) = values.iter().find(|column| column.len() != fingerprints.len()) {
            let what = format!("{} keys were staged with {} values", fingerprints.len(), column.len());
            return Err(Error::invalid(what).safe("nothing was sealed"));
        }
        let covered_by = vec![0; fingerprints.len()];
        let mut rows = Self { fingerprints, checkpoints: vec![id], covered_by, values };
        rows.sort()?;
        Ok(rows)
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// These and `newer`, not sorted.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when the values cannot be put into one array.
    pub fn then(mut self, newer: Self) -> Result<Self> {
        if self.is_empty() {
            return Ok(newer);
        }
        let (here, there) = (self.len(), newer.len());
        let mut places: HashMap<CheckpointId, u32> =
            self.checkpoints.iter().zip(0..).map(|(id, place)| (*id, place)).collect();
        let moved: Vec<u32> = newer
            .checkpoints
            .iter()
            .map(|id| {
                *places.entry(*id).or_insert_with(|| {
                    self.checkpoints.push(*id);
                    self.checkpoints.len() as u32 - 1
                })
            })
            .collect();
        self.fingerprints.extend(newer.fingerprints);
        self.covered_by.extend(newer.covered_by.iter().map(|place| moved[*place as usize]));
        let columns = self.values.len().max(newer.values.len());
        let column = |values: &[ArrayRef], i: usize, rows| {
            values.get(i).cloned().unwrap_or_else(|| new_null_array(&DataType::Utf8, rows))
        };
        let joined = |i| {
            let (old, new) = (column(&self.values, i, here), column(&newer.values, i, there));
            if bytes_of(&old) + bytes_of(&new) > MOST_TEXT {
                // They are for people only: the keys count without them.
                return Ok(new_null_array(&DataType::Utf8, here + there));
            }
            arrow_select::concat::concat(&[&old, &new]).map_err(unlike)
        };
        self.values = (0..columns).map(joined).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Without the keys of `dead`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when the values are of no kind that can be taken apart.
    pub fn without(self, dead: &HashSet<CheckpointId>) -> Result<Self> {
        if !self.checkpoints.iter().any(|id| dead.contains(id)) {
            return Ok(self);
        }
        let lives: Vec<bool> = self.checkpoints.iter().map(|id| !dead.contains(id)).collect();
        let left: Vec<u32> =
            (0..self.len() as u32).filter(|row| lives[self.covered_by[*row as usize] as usize]).collect();
        self.pick(left)
    }

    /// Sorts by fingerprint; of equal ones the first stays.
    pub(super) fn sort(&mut self) -> Result<()> {
        if self.fingerprints.windows(2).all(|pair| pair[0] < pair[1]) {
            return Ok(());
        }
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by_key(|row| self.fingerprints[*row as usize]);
        order.dedup_by_key(|row| self.fingerprints[*row as usize]);
        *self = std::mem::take(self).pick(order)?;
        Ok(())
    }

    /// These rows, in this order, and no checkpoint without any.
    fn pick(self, rows: Vec<u32>) -> Result<Self> {
        let fingerprints = rows.iter().map(|row| self.fingerprints[*row as usize]).collect();
        let mut places: HashMap<u32, u32> = HashMap::new();
        let mut checkpoints = Vec::new();
        let covered_by = rows
            .iter()
            .map(|row| {
                let old = self.covered_by[*row as usize];
                *places.entry(old).or_insert_with(|| {
                    checkpoints.push(self.checkpoints[old as usize]);
                    checkpoints.len() as u32 - 1
                })
            })
            .collect();
        let rows = UInt32Array::from(rows);
        let take = |column: &ArrayRef| arrow_select::take::take(column, &rows, None).map_err(unlike);
        let values = self.values.iter().map(take).collect::<Result<_>>()?;
        Ok(Self { fingerprints, checkpoints, covered_by, values })
    }

    /// Bytes of the values.
    pub(super) fn text_bytes(&self) -> usize {
        self.values.iter().map(bytes_of).sum()
    }
}

/// Bytes of one column of values that are kept together, at most: an array of text has no more than twice as many.
const MOST_TEXT: usize = 1 << 30;

/// Bytes of the texts in `column`.
fn bytes_of(column: &ArrayRef) -> usize {
    let texts = column.as_any().downcast_ref::<StringArray>();
    texts.map_or(0, |texts| {
        texts.value_offsets().last().zip(texts.value_offsets().first()).map_or(0, |(end, begin)| (end - begin) as usize)
    })
}

fn unlike(error: arrow_schema::ArrowError) -> Error {
    Error::invalid("the values of keys are not text").caused_by(error).safe("nothing was written")
}
