//! y[b, t] = table[id[b, t]] + positions[t]: token and position embedding of a text encoder. Frozen, so it has no gradient.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Inputs: ids [B, T] u32, table [V, D], positions [≥ T, D]. Output: [B, T, D] as `dtype`. Ids must be below V.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Embedding {
    pub dtype: DType,
}

impl Rule for Embedding {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let (ids, table, positions) = (&inputs[0].shape, &inputs[1].shape, &inputs[2].shape);
        assert_eq!(inputs[0].dtype, DType::U32, "embedding: ids are u32");
        assert!(ids.channels() <= positions.dims()[0], "embedding: {} tokens, but only {} positions", ids.channels(), positions.dims()[0]);
        assert_eq!(table.channels(), positions.channels(), "embedding: table {table} and positions {positions} differ");
        vec![Meta::new([ids.dims()[0], ids.channels(), table.channels()], self.dtype)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (ids, table, positions) = (inputs[0], inputs[1], inputs[2]);
        let tokens = ids.shape.channels();
        let row =
            |(i, id): (usize, &f32)| table.row(*id as usize).iter().zip(positions.row(i % tokens)).map(|(a, b)| a + b).collect::<Vec<_>>();
        let data = ids.data.iter().enumerate().flat_map(row).collect();
        vec![Array::new([ids.shape.dims()[0], tokens, table.shape.channels()], data)]
    }

    fn cost(&self, _: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(1.0, outputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |b, t, v: u32, d| {
            let ids = (Meta::new([b, t], DType::U32), Fill::Below(v));
            Case::new(
                Embedding { dtype: types.activation },
                vec![ids, normal([v as usize, d], types.weight), normal([t + 2, d], types.weight)],
            )
        };
        vec![case(2, 8, 50, 32), case(3, 5, 7, 9)]
    }
}

impl Builder {
    /// Token plus position embedding of ids [B, T].
    pub fn embedding(&mut self, ids: ValueId, table: ValueId, positions: ValueId) -> ValueId {
        self.push_one(Embedding { dtype: self.dtype }, &[ids, table, positions])
    }
}
