-- expect: ok local layers.0.mlp.gate_proj.weight 64,33
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, ffn_hidden_dim = 132 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 4 },
}
