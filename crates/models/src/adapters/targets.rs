//! Modules of a model, and which of them get an adapter.
//!
//! The rule is sd-scripts': linear layers and 1×1 convolutions of the transformers; with a convolution rank also what resnets, down- and
//! upsamplers hold (3×3 convolutions with that rank, the others with the linear one); attention and MLP of the text encoder.

use base::Shape;
use weights::lora::ModuleShape;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Linear,
    Conv { kernel: [usize; 2], stride: usize },
}

/// A linear layer or convolution, by canonical name (`unet.mid_block.attentions.0.proj_in`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    pub name: String,
    pub kind: Kind,
    pub inputs: usize,
    pub outputs: usize,
}

/// The part of a model that a module stands in, as far as adapters care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    UnetTransformer,
    /// Resnets, downsamplers and upsamplers.
    UnetConvolutions,
    TextEncoder,
    /// Gets an adapter only from a file that has one for it.
    Other,
}

impl Module {
    pub fn place(&self) -> Place {
        let has = |parts: &[&str]| parts.iter().any(|part| self.name.contains(part));
        match self.name.split('.').next() {
            Some("unet") if has(&[".attentions."]) => Place::UnetTransformer,
            Some("unet") if has(&[".resnets.", ".downsamplers.", ".upsamplers."]) => Place::UnetConvolutions,
            Some("text_encoder") if has(&[".self_attn.", ".mlp."]) => Place::TextEncoder,
            _ => Place::Other,
        }
    }

    /// Whether its weight is a matrix in memory: linear layers and 1×1 convolutions.
    pub fn is_matrix(&self) -> bool {
        match self.kind {
            Kind::Linear => true,
            Kind::Conv { kernel, stride } => kernel == [1, 1] && stride == 1,
        }
    }

    /// The name that sd-scripts gives the module: `lora_unet_mid_block_attentions_0_proj_in`.
    pub fn kohya_name(&self) -> String {
        let (component, path) = self.name.split_once('.').unwrap_or(("", &self.name));
        let prefix = if component == "text_encoder" { "lora_te" } else { "lora_unet" };
        format!("{prefix}_{}", path.replace('.', "_"))
    }

    /// The module as LoRA files are checked and written by.
    pub fn in_lora_file(&self) -> ModuleShape {
        let kernel = match self.kind {
            Kind::Linear => None,
            Kind::Conv { kernel, .. } => Some(kernel),
        };
        ModuleShape { name: self.name.clone(), input: self.inputs, output: self.outputs, kernel }
    }

    /// A in memory: `[rank, in]` or `[rank, kh, kw, in]`.
    pub fn down_shape(&self, rank: usize) -> Shape {
        match self.kind {
            Kind::Conv { kernel: [kh, kw], .. } if !self.is_matrix() => Shape::from([rank, kh, kw, self.inputs]),
            _ => Shape::from([rank, self.inputs]),
        }
    }

    /// B in memory: `[out, rank]`.
    pub fn up_shape(&self, rank: usize) -> Shape {
        Shape::from([self.outputs, rank])
    }

    /// A in files: `[rank, in]` or `[rank, in, kh, kw]`.
    pub fn down_file_shape(&self, rank: usize) -> Shape {
        self.in_file(rank, self.inputs, true)
    }

    /// B in files: `[out, rank]` or `[out, rank, 1, 1]`.
    pub fn up_file_shape(&self, rank: usize) -> Shape {
        self.in_file(self.outputs, rank, false)
    }

    /// The frozen weight in files: `[out, in]` or `[out, in, kh, kw]`.
    pub fn weight_file_shape(&self) -> Shape {
        self.in_file(self.outputs, self.inputs, true)
    }

    fn in_file(&self, outputs: usize, inputs: usize, with_kernel: bool) -> Shape {
        match self.kind {
            Kind::Linear => Shape::from([outputs, inputs]),
            Kind::Conv { kernel: [kh, kw], .. } if with_kernel => Shape::from([outputs, inputs, kh, kw]),
            Kind::Conv { .. } => Shape::from([outputs, inputs, 1, 1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, kind: Kind) -> Module {
        Module { name: name.into(), kind, inputs: 8, outputs: 16 }
    }

    #[test]
    fn places_follow_the_rule_of_sd_scripts() {
        let place = |name: &str| module(name, Kind::Linear).place();
        assert_eq!(place("unet.down_blocks.0.attentions.0.transformer_blocks.0.ff.net.2"), Place::UnetTransformer);
        assert_eq!(place("unet.up_blocks.1.resnets.0.time_emb_proj"), Place::UnetConvolutions);
        assert_eq!(place("unet.down_blocks.0.downsamplers.0.conv"), Place::UnetConvolutions);
        assert_eq!(place("text_encoder.text_model.encoder.layers.0.mlp.fc1"), Place::TextEncoder);
        assert_eq!(place("unet.conv_in"), Place::Other);
        assert_eq!(place("unet.time_embedding.linear_1"), Place::Other);
        assert_eq!(place("vae.decoder.mid_block.attentions.0.to_q"), Place::Other);
    }

    #[test]
    fn shapes_in_memory_and_in_files() {
        let conv = module("unet.a", Kind::Conv { kernel: [3, 3], stride: 1 });
        let point = module("unet.a", Kind::Conv { kernel: [1, 1], stride: 1 });
        assert_eq!((conv.down_shape(4), conv.down_file_shape(4)), (Shape::from([4, 3, 3, 8]), Shape::from([4, 8, 3, 3])));
        assert_eq!((conv.up_shape(4), conv.up_file_shape(4)), (Shape::from([16, 4]), Shape::from([16, 4, 1, 1])));
        assert_eq!((point.down_shape(4), point.down_file_shape(4)), (Shape::from([4, 8]), Shape::from([4, 8, 1, 1])));
        assert_eq!(point.weight_file_shape(), Shape::from([16, 8, 1, 1]));
        assert_eq!(module("text_encoder.text_model.x.fc1", Kind::Linear).kohya_name(), "lora_te_text_model_x_fc1");
    }
}
