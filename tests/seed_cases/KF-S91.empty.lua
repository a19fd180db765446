-- expect: ok ranks 2
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  checkpoint = { load_path = "" },
}
