-- expect: error[seq-exceeds-model] train.seq_len (2049) exceeds model.max_seq_len (2048)
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 2049 },
}
