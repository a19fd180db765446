-- expect: warning[not-applied] full is a no-op for MoMa
-- expect: error[dialect-unsupported] arch = 'moma'
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, max_seq_len = 1024 },
  train = { batch_size = 1, seq_len = 576, activation_checkpointing = "full" },
  vision_encoder = { num_tokens = 64 },
  vlm = { arch = "moma", max_text_len = 512 },
}
