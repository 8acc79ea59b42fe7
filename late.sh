for i in 1 2 3; do for b in bo-get bo-late; do for q in 32 64; do echo -n "$b Q$q "; BO=/tmp/v4/$b Q=$q E=2 bash /tmp/v4/pair.sh 1; done; done; done
