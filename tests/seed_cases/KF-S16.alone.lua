-- expect: warning[not-applied] [vision_encoder] has no effect without [vlm]
-- expect: warning[not-applied] [adapter] has no effect without [vlm]
-- expect: ok ranks 2
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  vision_encoder = { type = "random", feature_dim = 16, num_tokens = 4 }, adapter = {},
}
