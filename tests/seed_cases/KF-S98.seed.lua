-- expect: error[out-of-range] seed must be non-negative: train.seed = -1
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 4, n_heads = 4, n_kv_heads = 2, vocab_size = 100, max_seq_len = 64 },
  train = { batch_size = 2, seq_len = 32, max_steps = 2, compile_model = false, seed = -1 },
}
