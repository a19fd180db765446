-- expect: error[divides-features] layers.0.mlp.gate_proj.weight: dimension 1 = 130 cannot be split over tp = 4
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, ffn_hidden_dim = 130 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 4 },
}
