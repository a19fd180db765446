-- expect: note[norms-not-initialised] norm weights start at zero
-- expect: ok initial layers.0.attention_norm.weight zeros | initial norm.weight zeros | initial layers.0.mlp.up_proj.weight normal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 2 },
  as = "original",
}
