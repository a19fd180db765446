-- expect: no warning[not-applied]
-- expect: ok ranks 1
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, max_seq_len = 1024 },
  train = { batch_size = 1, seq_len = 576, activation_checkpointing = "full", compile_model = false },
  vision_encoder = { num_tokens = 64 },
  vlm = { max_text_len = 512 },
}
