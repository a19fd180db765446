-- expect: ok ranks 2 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, max_seq_len = 1024 },
  train = { batch_size = 1, seq_len = 576 },
  vision_encoder = { num_tokens = 64 },
  vlm = { max_text_len = 512 },
}
