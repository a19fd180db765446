-- expect: ok ranks 1
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, max_seq_len = 1024 },
  train = { batch_size = 1, seq_len = 64 },
  vision_encoder = { num_tokens = 0 },
  vlm = { max_text_len = 512 },
}
