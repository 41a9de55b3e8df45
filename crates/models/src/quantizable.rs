//! Which frozen matrices may be kept in few bits.

/// Whether the tensor may be quantized where its part is: the matrices of linear layers and convolutions. As they are stay
///
/// - biases and norms: few numbers, and every path of the network passes them (they have one axis, and are never asked for);
/// - embedding tables: a row is read as it is, and no sum over many of its numbers averages errors out;
/// - the first and last convolution and the time embedding: few numbers too, and what they get wrong every step gets wrong;
/// - the VAE, which is not loaded while a run trains.
pub fn is_quantizable(name: &str) -> bool {
    const WHOLE: [&str; 3] = ["unet.conv_in.", "unet.conv_out.", "unet.time_embedding."];
    match name.split_once('.') {
        Some(("unet", _)) => !WHOLE.iter().any(|start| name.starts_with(start)),
        Some(("text_encoder", _)) => !name.contains(".embeddings."),
        _ => false,
    }
}
