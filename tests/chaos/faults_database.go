package main

// databaseFaults are about MariaDB.
var databaseFaults []*fault
