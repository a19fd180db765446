require "mine.own"
