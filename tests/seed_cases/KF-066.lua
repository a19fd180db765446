-- expect: error[option-contradicts] MoMa + model.num_experts > 0 (4) is rejected
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, max_seq_len = 1024, num_experts = 4 },
  train = { batch_size = 1, seq_len = 576 },
  vision_encoder = { num_tokens = 64 },
  vlm = { arch = "moma", max_text_len = 512 },
}
