-- expect: ok ranks 2
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 4, n_heads = 4, n_kv_heads = 2, vocab_size = 100, max_seq_len = 64 },
  vision_encoder = { type = "random", feature_dim = 0, num_tokens = 0 },
  vlm = { max_text_len = 16 },
  adapter = { hidden_dim = 0, pool_window = 1 },
  train = { batch_size = 2, seq_len = 32, max_steps = 2, compile_model = false },
}
