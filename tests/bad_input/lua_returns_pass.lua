return tp {}
