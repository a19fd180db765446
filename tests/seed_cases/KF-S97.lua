-- expect: error[out-of-range] feature_dim must be non-negative
-- expect: error[out-of-range] num_tokens must be non-negative
-- expect: error[out-of-range] hidden_dim must be non-negative
-- expect: error[out-of-range] pool_window must be positive
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 4, n_heads = 4, n_kv_heads = 2, vocab_size = 100, max_seq_len = 64 },
  vision_encoder = { type = "random", feature_dim = -1, num_tokens = -4 },
  vlm = { max_text_len = 16 },
  adapter = { hidden_dim = -1, pool_window = 0 },
  train = { batch_size = 2, seq_len = 32, max_steps = 2, compile_model = false },
}
