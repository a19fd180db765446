-- expect: error[unknown-word] Unknown sdpa_backend: model.sdpa_backend = 'fa3' | auto, flash, efficient, cudnn, math
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, sdpa_backend = "fa3" },
  train = { batch_size = 1, seq_len = 64 },
}
