-- expect: error[vlm-sequence] model.max_seq_len (32) insufficient for VLM at build time | (16) | (24) = 40
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, max_seq_len = 32 },
  train = { batch_size = 1, seq_len = 32 },
  vision_encoder = { num_tokens = 0 },
  vlm = { max_text_len = 24 },
}
