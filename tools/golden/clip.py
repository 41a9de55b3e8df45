"""CLIP text encoder: token ids to hidden states, with and without clip skip."""

import torch

from common import GOLDEN, STYLES, generator, load_text_encoder, save

SEED = 2


@torch.no_grad()
def main():
    for style in STYLES:
        model = load_text_encoder(style)
        ids = torch.randint(0, 98, (3, 16), generator=generator(SEED, style))
        ids[:, 0] = 98
        for row, length in enumerate((5, 16, 1)):  # a caption, a full one, an empty one; padded with the end token
            ids[row, min(length, 15):] = 99
        out = model(ids, output_hidden_states=True)
        norm = getattr(model, "text_model", model).final_layer_norm
        tensors = {"ids": ids, "last_hidden_state": out.last_hidden_state, "clip_skip_2": norm(out.hidden_states[-2])}
        assert torch.allclose(norm(out.hidden_states[-1]), out.last_hidden_state, atol=1e-6)
        print(f"{style}: std {out.last_hidden_state.std():.3f}, skip differs by {(tensors['clip_skip_2'] - out.last_hidden_state).std():.3f}")
        save(GOLDEN / style / "clip.safetensors", "clip.py", SEED, tensors,
             clip_skip="counted as kohya does: 2 is the output of the last layer but one; both went through final_layer_norm")


if __name__ == "__main__":
    main()
