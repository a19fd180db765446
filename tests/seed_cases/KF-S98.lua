-- expect: error[out-of-range] rope_theta must be positive: model.rope_theta = -1
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 4, n_heads = 4, n_kv_heads = 2, vocab_size = 100, max_seq_len = 64, rope_theta = -1.0 },
  train = { batch_size = 2, seq_len = 32, max_steps = 2, compile_model = false },
}
